package command

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// sources are the flags that name several backends, in addition to the words of the command line.
type sources struct{ urls, files []string }

func (s *sources) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&s.urls, "url", nil,
		"another `URL`; it shows in ps: put a password into DLOCK_URL or --url-file")
	flags.StringArrayVar(&s.files, "url-file", nil, "read another URL from `FILE`")
}

// all returns the URLs of the command line, or the URL of the environment if there are none.
func (s *sources) all(
	ctx context.Context, a *app, command string, words []string,
) ([]string, error) {
	urls := append(append([]string{}, words...), s.urls...)
	for _, file := range s.files {
		url, err := readURL(ctx, file)
		if err != nil {
			return nil, err
		}
		urls = append(urls, url)
	}
	if url := a.getenv("DLOCK_URL"); len(urls) == 0 && url != "" {
		urls = []string{url}
	}
	if len(urls) == 0 {
		return nil, usagef(
			"%s takes a URL, or more: as words, by --url or --url-file; DLOCK_URL is not set",
			command)
	}
	return urls, nil
}

// output is a file that replaces another one when it is complete.
type output struct {
	*os.File
	path string      // of the file to replace; "" if File is written directly
	old  os.FileInfo // of the file to replace; nil if there is none
}

// createOutput returns an error if the file cannot be written. An old file stays until done.
func createOutput(path string) (*output, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	old, err := os.Stat(path)
	switch {
	case err != nil:
		old = nil
	case !old.Mode().IsRegular(): // such as /dev/stdout
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &output{File: file}, err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	return &output{File: file, path: path, old: old}, err
}

// done moves the complete file to its path.
func (o *output) done() error {
	if o.path == "" {
		return o.Close()
	}
	if o.old != nil {
		if err := o.Chmod(o.old.Mode().Perm()); err != nil {
			return err
		}
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
