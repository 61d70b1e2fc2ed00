package sqlite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
)

// said returns all changes of the project, oldest first: "ref old>new op", "-" for no row and no operation.
func said(t *testing.T, d *sqlite.Driver) string {
	t.Helper()
	page, err := d.Log(t.Context(), refdb.LogRequest{Project: project, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	orNone := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	var all []string
	for _, c := range slices.Backward(page.Changes) {
		all = append(all, fmt.Sprintf("%s %s>%s %s", strings.TrimPrefix(c.Ref, "refs/heads/"), orNone(string(c.Old)), orNone(string(c.New)), orNone(c.Op)))
	}
	return strings.Join(all, ", ")
}
