// Command prose measures how a tree of files is written. For each package it prints the share of
// comments, the long sentences, the lines beyond 100 columns, and how often 1,000 words of comments
// have the words that CONTRIBUTING.md does without. Each document has a row of its own. So have the
// names of tests, and the texts: all strings of several words.
//
//	go run ./internal/prose [-where] [-longest] [folder...]
//
// With -where it prints the place of each finding instead, and with -longest the ten longest
// functions and files. The folders can be any tree, for example an earlier commit.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func main() {
	where := flag.Bool("where", false, "print the place of each finding")
	longest := flag.Bool("longest", false, "print the ten longest functions and files")
	flag.Parse()
	folders := flag.Args()
	if len(folders) == 0 {
		folders = []string{"."}
	}
	if err := run(os.Stdout, folders, *where, *longest); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// run prints what the flags select, by default the figures of each package.
func run(w io.Writer, folders []string, where, longest bool) error {
	if longest {
		return printLongest(w, folders)
	}
	figures, err := measure(folders...)
	if err != nil {
		return err
	}
	if !where {
		return printFigures(w, figures)
	}
	for _, f := range figures[:len(figures)-1] {
		for _, found := range f.findings {
			if _, err := fmt.Fprintln(w, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// printFigures prints a row for each figure.
func printFigures(out io.Writer, figures []*figure) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "package\tcode\tcomment/code\twords\t")
	for _, r := range rules {
		fmt.Fprintf(w, "%s\t", r.name)
	}
	fmt.Fprintf(w, "over %d words\tlong lines\t\n", maxSentence)
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%d\t", f.name, f.code, f.share(), f.words)
		for i := range rules {
			fmt.Fprintf(w, "%.1f\t", f.rate(i))
		}
		fmt.Fprintf(w, "%d\t%d\t\n", f.sentences, f.long)
	}
	return w.Flush()
}
