package spannermigrate

import (
	"slices"
	"testing"
)

func TestStatements(t *testing.T) {
	got := statements("-- a comment; with a semicolon\nCREATE TABLE a (\n  x INT64, -- the key\n) PRIMARY KEY (x);\n\nDROP TABLE b;\n")
	want := []string{"CREATE TABLE a (\n  x INT64, \n) PRIMARY KEY (x)", "DROP TABLE b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
