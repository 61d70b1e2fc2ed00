package postgres

import "testing"

func TestPrefixEndIsTheLeastStringAfterAllWithThePrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"a":                     "b",
		"refs/heads/":           "refs/heads0",
		"\x7f":                  "\u0080",
		"é":                     "ê",
		"\ud7ff":                "\ue000",
		"\uffff":                "\U00010000",
		"a\U0010ffff":           "b",
		"a\U0010ffff\U0010ffff": "b",
		"a\ud7ff\U0010ffff":     "a\ue000",
		"":                      "",
		"\U0010ffff":            "",
		"RECLAIM_":              "RECLAIM`",
	} {
		got, ok := prefixEnd(prefix)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", prefix, got, ok)
		}
	}
}
