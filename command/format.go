package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dlock-go/dlock/backend"
)

// unknown is shown for a value that the backend does not report.
const unknown = "-"

// writeJSON writes v on one line.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printable returns s in a form that is harmless on a terminal. Other programs choose the names and
// the meta text of locks.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.QuoteToGraphic(s)
	}
	return s
}

// modeOf describes the kind of a lock: "exclusive", "shared", or "2 of 3 permits".
func modeOf(info *backend.Info) string {
	switch {
	case len(info.Holders) == 0:
		return unknown
	case info.Mode == backend.Permit:
		return fmt.Sprintf("%d of %d permits", len(info.Holders), info.Limit)
	}
	return info.Mode.String()
}

// holderName returns the name of a holder in messages.
func holderName(h *backend.Holder) string {
	if h.Meta != "" {
		return printable(h.Meta)
	}
	return printable(h.Owner)
}

// span formats a duration for a reader: in tenths of a second below 10 s, in seconds above.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return unknown
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// age formats the time since t.
func age(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return span(max(0, time.Since(t))) // clocks differ between hosts
}

func waiters(n int) string {
	if n < 0 {
		return unknown
	}
	return strconv.Itoa(n)
}

// describe returns one line about a holder: its name, how long it has held the lock, and its fence.
func describe(h *backend.Holder) string {
	return fmt.Sprintf("%s, for %s, fence %d", holderName(h), age(h.Since), h.Fence)
}
