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

// unknown stands for what the backend does not tell.
const unknown = "-"

// writeJSON writes v on one line.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printable makes text of others harmless to a terminal.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.QuoteToGraphic(s)
	}
	return s
}

// holderName names a holder to people.
func holderName(h *backend.Holder) string {
	if h.Meta != "" {
		return printable(h.Meta)
	}
	return printable(h.Owner)
}

// span is a duration in the precision that people read.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return unknown
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// age is how long ago t was.
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

// describe names a holder and since when it holds, in one line.
func describe(h *backend.Holder) string {
	return fmt.Sprintf("%s, for %s, fence %d", holderName(h), age(h.Since), h.Fence)
}
