package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// overlay writes a changed file and the list that makes the go command read it instead of the
// original. The tree itself does not change. remove deletes both files.
func overlay(file, text string) (list string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "dlock-mutant-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	changed := filepath.Join(dir, filepath.Base(file))
	original, err := filepath.Abs(file)
	if err == nil {
		err = os.WriteFile(changed, []byte(text), 0o600)
	}
	list = filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(list, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, original, changed), 0o600)
	}
	if err != nil {
		remove()
	}
	return list, remove, err
}
