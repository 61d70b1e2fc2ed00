package cli

import (
	"fmt"
	"testing"
)

func TestUsageLinesAreParsed(t *testing.T) {
	t.Parallel()
	for use, want := range map[string]string{
		"list":                      "[] of [] false",
		"get PROJECT REF":           "[PROJECT REF] of [PROJECT REF] false",
		"log PROJECT [REF]":         "[PROJECT] of [PROJECT REF] false",
		"top [PROJECT...]":          "[] of [PROJECT] true",
		"clone [PROJECT]...":        "[] of [PROJECT] true",
		"retire NAME --reason TEXT": "[NAME] of [NAME] false",
		"lock [flags] PROJECT (REF... | --shared NAME) -- COMMAND [ARG...]":                  "[] of [PROJECT REF] true",
		"put PROJECT REF NEW (--old OLD | --force)":                                          "[PROJECT REF NEW] of [PROJECT REF NEW] false",
		"delete PROJECT (REF (--old OLD | --force) | --prefix PREFIX)":                       "[PROJECT] of [PROJECT REF] false",
		"rollback PROJECT (REF[@{N}]... | --at TIME|POSITION [--prefix PREFIX])":             "[PROJECT] of [PROJECT REF] true",
		"set PROJECT [--ref PATTERN]... [--mode MODE] | --mirror-at SITE | --no-mirror":      "[PROJECT] of [PROJECT] false",
		"resolve (PROJECT REF | --project P | --site S) --keep-old|--take-new --reason TEXT": "[] of [PROJECT REF] false",
	} {
		o := operandsOf(use)
		if got := fmt.Sprint(o.required, " of ", o.all, " ", o.repeated); got != want {
			t.Errorf("%s: %s, want %s", use, got, want)
		}
	}
}
