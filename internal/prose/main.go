// Command prose measures how the repository is written: for each package the share of comments, the
// words that the style guide in CONTRIBUTING.md does without, per 1,000 words of comments, and the
// lines beyond 100 columns.
//
//	go run ./internal/prose [folder...]
package main

import (
	"fmt"
	"os"
	"text/tabwriter"
)

func main() {
	folders := os.Args[1:]
	if len(folders) == 0 {
		folders = []string{"."}
	}
	figures, err := measure(folders...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "package\tcode\tcomment/code\twords\t")
	for _, r := range rules {
		fmt.Fprintf(w, "%s\t", r.name)
	}
	fmt.Fprintln(w, "long lines\t")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%d\t", f.name, f.code, f.share(), f.words)
		for i := range rules {
			fmt.Fprintf(w, "%.1f\t", f.rate(i))
		}
		fmt.Fprintf(w, "%d\t\n", f.long)
	}
	_ = w.Flush()
}
