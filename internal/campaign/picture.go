//go:build unix

package campaign

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// keptTime is the form of the time in the names of files. It differs between any two histories.
const keptTime = "20060102-150405.000000"

// Keep writes the history into dir, and an HTML picture for each lock with a violation. It returns
// the names of the files. A name has the server, the seed and the time.
func (v *Verdict) Keep(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	base := filepath.Join(dir, fmt.Sprintf("%s-seed%d-%s",
		v.Figures.Server, v.Figures.Seed, time.Now().UTC().Format(keptTime)))
	files = append(files, base+".jsonl")
	err = v.ledger.Save(files[0])
	drawn := v.drawn()
	for i, name := range drawn {
		file := fmt.Sprintf("%s-%d.html", base, i+1)
		files = append(files, file)
		err = errors.Join(err, v.draw(name, file, patience/time.Duration(len(drawn))))
	}
	return files, err
}

// drawn returns the names of the locks with a violation, in the order of their first violations.
func (v *Verdict) drawn() []string {
	var names []string
	for _, x := range v.Violations {
		if x.Name != "" && !slices.Contains(names, x.Name) {
			names = append(names, x.Name)
		}
	}
	return names
}

// draw writes the picture of one lock: its grants and their ends for each worker, with the faults
// and the violations. limit is the time in which porcupine searches for the order of the
// operations. A picture without an order has the operations, too.
func (v *Verdict) draw(name, file string, limit time.Duration) error {
	operations := v.ledger.operations(v.ledger.grants[name])
	round := v.ledger.rounds[name]
	model := v.ledger.lockOf(round).model()
	_, info := porcupine.CheckOperationsVerbose(model, operations, limit)
	var notes []porcupine.Annotation
	for _, w := range v.ledger.windows {
		if w.round == round {
			tag := "server"
			if w.worker != Engine {
				tag = fmt.Sprintf("worker %d", w.worker)
			}
			notes = append(notes, porcupine.Annotation{
				Tag: tag, Start: int64(w.from), End: int64(w.to),
				Description: string(w.kind), BackgroundColor: "#ffd9b3",
			})
		}
	}
	for _, x := range v.Violations {
		if x.Name == name {
			notes = append(notes, porcupine.Annotation{
				Tag: "rule " + string(x.Rule), Start: int64(x.At),
				Description: "violation", Details: x.Text, BackgroundColor: "#ff9999",
			})
		}
	}
	info.AddAnnotations(notes)
	return porcupine.VisualizePath(model, info, file)
}
