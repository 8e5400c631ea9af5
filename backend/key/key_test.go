package key

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a", "a b", "é", "a/b", "{a}", strings.Repeat("x", MaxName), "%", ".",
	} {
		if err := Validate(name); err != nil {
			t.Errorf("Validate(%q): %v", name, err)
		}
	}
	for _, name := range []string{
		"", strings.Repeat("x", MaxName+1), "a\x00", "a\n", "\x7f", "\u0085", "\xff",
	} {
		if err := Validate(name); err == nil {
			t.Errorf("Validate(%q): no error", name)
		} else if len(err.Error()) > 200 {
			t.Errorf("Validate of %d bytes: the error has %d bytes", len(name), len(err.Error()))
		}
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, key, file string }{
		{"job:nightly-1.2_x", "job:nightly-1.2_x", "job%3anightly-1.2_x"},
		{"A b", "A%20b", "%41%20b"},
		{"a/b", "a%2fb", "a%2fb"},
		{"a%2fb", "a%252fb", "a%252fb"},
		{"..", "%2e.", "%2e."},
		{"{a}", "%7ba%7d", "%7ba%7d"},
	}
	for _, tt := range tests {
		if got := Encode(tt.name, 250); got != tt.key {
			t.Errorf("Encode(%q) = %q, want %q", tt.name, got, tt.key)
		}
		if got := EncodeFile(tt.name, 250); got != tt.file {
			t.Errorf("EncodeFile(%q) = %q, want %q", tt.name, got, tt.file)
		}
	}
}

// TestEncodingsAreGolden pins the encodings. Two versions of a program that encode a name
// differently would not exclude each other.
func TestEncodingsAreGolden(t *testing.T) {
	t.Parallel()
	const name = " !\"#$%&'()*+,-./0123456789:;<=>?@" +
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~é"
	const small = "%5b%5c%5d%5e_%60abcdefghijklmnopqrstuvwxyz%7b%7c%7d%7e%c3%a9"
	// hash is the SHA-256 of long.
	const hash = "%-7b56e8a9613b1cd446b56443ed66a2ecd449caaf4d360932e3ced9584aef4cf7"
	long := strings.Repeat("z", 251)
	for _, tt := range []struct{ what, got, want string }{
		{
			"Encode", Encode(name, 1000),
			"%20%21%22%23%24%25%26%27%28%29%2a%2b%2c-.%2f0123456789:%3b%3c%3d%3e%3f%40" +
				"ABCDEFGHIJKLMNOPQRSTUVWXYZ" + small,
		},
		{
			"EncodeFile", EncodeFile(name, 1000),
			"%20%21%22%23%24%25%26%27%28%29%2a%2b%2c-.%2f0123456789%3a%3b%3c%3d%3e%3f%40" +
				"%41%42%43%44%45%46%47%48%49%4a%4b%4c%4d%4e%4f%50%51%52%53%54%55%56%57%58%59%5a" +
				small,
		},
		{"Encode of 251 bytes", Encode(long, 250), long[:184] + hash},
		{"EncodeFile of 251 bytes", EncodeFile(long, 250), long[:184] + hash},
		{"Encode within the limit", Encode(long, 251), long},
		{"Encode of a dot", Encode(".", 250), "%2e"},
		{"Encode at the minimum limit", Encode(long, MinLimit), hash},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, tt.got, tt.want)
		}
	}
}

// TestEncodeAllocates checks that Encode does not allocate for a plain name, and allocates once for
// any other name: drivers encode a name in each request.
func TestEncodeAllocates(t *testing.T) {
	for name, want := range map[string]float64{
		"job:nightly-1.2_x": 0, "x": 0, "a/b/c d/e f/g/h/i j/k": 1,
	} {
		if got := testing.AllocsPerRun(100, func() { Encode(name, 250) }); got != want {
			t.Errorf("%q: %v allocations, want %v", name, got, want)
		}
	}
}

func FuzzEncode(f *testing.F) {
	long := strings.Repeat("x", 300)
	for _, pair := range [][2]string{
		{"a", "A"},
		{"a", "a "},
		{"a/b", "a%2fb"},
		{"e\u0301", "é"},
		{long + "1", long + "2"},
		{".", "%2e"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for name, enc := range map[string]func(string, int) string{
			"Encode": Encode, "EncodeFile": EncodeFile,
		} {
			for _, limit := range []int{MinLimit, 250} {
				ka, kb := enc(a, limit), enc(b, limit)
				if (a == b) != (ka == kb) {
					t.Errorf("%s(%q) = %q, and of %q it is %q", name, a, ka, b, kb)
				}
				if len(ka) > limit || strings.HasPrefix(ka, ".") {
					t.Errorf("%s(%q, %d) = %q", name, a, limit, ka)
				}
				const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-%"
				if strings.Trim(ka, safe) != "" {
					t.Errorf("%s(%q) = %q has a byte that servers may refuse", name, a, ka)
				}
			}
		}
	})
}
