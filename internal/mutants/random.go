package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// change is one random mutant: it replaces a piece of a file.
type change struct {
	file       string // relative to the root of the module
	from, to   int    // byte offsets of the piece
	old, new   string
	line       int
	source     string // the whole line
	operator   string
	equivalent string // the reason if no test can detect it; empty if a test should
}

// String describes the place and the change in one line.
func (c change) String() string {
	return fmt.Sprintf("%s:%d: %s: %s -> %s",
		c.file, c.line, c.operator, oneLine(c.old), oneLine(c.new))
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 70 {
		text = text[:70] + "…"
	}
	if text == "" {
		return "nothing"
	}
	return text
}

// verdict is the result for one mutant.
type verdict int

const (
	killed   verdict = iota
	survived         // all tests pass
	invalid          // it does not compile, so it does not count
)

// score counts the verdicts on one part.
type score struct {
	killed, survived, equivalent int
}

func (s score) String() string {
	counted := s.killed + s.survived
	if counted == 0 {
		return "no mutants"
	}
	return fmt.Sprintf("%d of %d killed (%.1f %%), %d equivalent",
		s.killed, counted, 100*float64(s.killed)/float64(counted), s.equivalent)
}

// campaign runs up to n random mutants of a part, jobs at a time, among the mutants with a matching
// description. The same seed chooses the same mutants as long as the files do not change. campaign
// prints each survivor as soon as it is found.
func campaign(p part, wanted *regexp.Regexp, n int, seed uint64, jobs int) (score, error) {
	changes, err := p.changes()
	if err != nil {
		return score{}, err
	}
	changes = slices.DeleteFunc(changes, func(c change) bool {
		return !wanted.MatchString(c.String())
	})
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	fmt.Printf("%s: %d of %d mutants, seed %d\n", p.name, min(n, len(changes)), len(changes), seed)
	if err := p.control(); err != nil {
		return score{}, err
	}
	c := &crew{part: p, queue: changes, wanted: n}
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(c.work)
	}
	workers.Wait()
	fmt.Printf("%s: %v\n", p.name, c.score)
	return c.score, c.err
}

// crew runs mutants in parallel until the wanted number of mutants has a verdict.
type crew struct {
	part part

	mu     sync.Mutex
	queue  []change
	wanted int // missing verdicts, without the mutants that run now
	score  score
	err    error
}

func (c *crew) work() {
	for {
		next, ok := c.next()
		if !ok {
			return
		}
		v, err := c.part.judge(next)
		c.count(next, v, err)
	}
}

func (c *crew) next() (change, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.wanted == 0 || len(c.queue) == 0 {
		return change{}, false
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	c.wanted--
	return next, true
}

func (c *crew) count(m change, v verdict, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.err = err
	case v == invalid:
		c.wanted++
	case v == killed:
		c.score.killed++
	case m.equivalent != "":
		c.score.equivalent++
		fmt.Printf("equivalent  %v (%s)\n", m, m.equivalent)
	default:
		c.score.survived++
		fmt.Printf("SURVIVED    %v\n", m)
	}
}

// lineAround returns the line of text with the byte at that offset, without its indentation.
func lineAround(text string, at int) string {
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[begin:], "\n")
	return strings.TrimSpace(line)
}

// text returns the changed file.
func (c change) text() (string, error) {
	source, err := os.ReadFile(c.file)
	if err != nil {
		return "", err
	}
	return string(source[:c.from]) + c.new + string(source[c.to:]), nil
}
