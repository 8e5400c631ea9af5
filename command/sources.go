package command

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// sources are the flags and words that name several backends.
type sources struct{ urls, files []string }

func (s *sources) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.urls, "url", nil, "another `URL`; it shows in ps: put a password into DLOCK_URL or --url-file")
	flags.StringArrayVar(&s.files, "url-file", nil, "read another URL from `FILE`")
}

// all returns the URLs of the command line, else that of the environment.
func (s *sources) all(a *app, command string, words []string) ([]string, error) {
	urls := append(append([]string{}, words...), s.urls...)
	for _, file := range s.files {
		url, err := readURL(file)
		if err != nil {
			return nil, err
		}
		urls = append(urls, url)
	}
	if url := a.getenv("DLOCK_URL"); len(urls) == 0 && url != "" {
		urls = []string{url}
	}
	if len(urls) == 0 {
		return nil, usagef("%s takes a URL, or more: as words, by --url or --url-file; DLOCK_URL is not set", command)
	}
	return urls, nil
}

// output is a file that replaces another one when it is complete.
type output struct {
	*os.File
	path string // to be replaced; "" if the file is written in its place
}

// createOutput fails if the file could not be written. What is there stays until done.
func createOutput(path string) (*output, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // such as /dev/stdout
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &output{File: file}, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	return &output{File: file, path: path}, err
}

// done puts the file into its place.
func (o *output) done() error {
	if o.path == "" {
		return o.Close()
	}
	if err := o.Chmod(0o644); err != nil { // as if it had been created there; CreateTemp gives 0600
		return err
	}
	if err := o.Close(); err != nil {
		return err
	}
	return os.Rename(o.Name(), o.path)
}

// discard removes a file that is not done.
func (o *output) discard() {
	_ = o.Close()
	if o.path != "" {
		_ = os.Remove(o.Name())
	}
}
