package output_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/output"
)

type record struct {
	name string
	age  time.Duration
	at   time.Time
}

var columns = []output.Column[record]{
	{Name: "name", Value: func(r record) any { return r.name }},
	{
		Name:  "age_seconds",
		Value: func(r record) any { return output.Seconds(r.age) },
		Text:  func(r record) string { return r.age.String() },
	},
	{Name: "at", Hidden: true, Value: func(r record) any {
		if r.at.IsZero() {
			return nil
		}
		return r.at
	}},
}

func write(tb testing.TB, f output.Format, records ...record) string {
	tb.Helper()
	var b strings.Builder
	w := output.NewWriter(&b, f, output.Palette{}, columns)
	for _, r := range records {
		if err := w.Write(r); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func TestRecordsInEachFormat(t *testing.T) {
	records := []record{
		{"o'brien, \"x\"", 1500 * time.Millisecond, time.Date(2026, 11, 21, 1, 2, 3, 4000, time.FixedZone("", 3600))},
		{"täg<&>", time.Hour, time.Time{}},
	}
	for _, c := range []struct {
		name    string
		format  output.Format
		records []record
		want    string
	}{
		{"a table has bare columns and no trailing spaces", output.Table, records,
			"NAME          AGE SECONDS\n" +
				"o'brien, \"x\"  1.5s\n" +
				"täg<&>        1h0m0s\n"},
		{"an empty table is empty", output.Table, nil, ""},
		{"JSON is an array", output.JSON, records,
			"[\n" +
				`  {"name": "o'brien, \"x\"", "age_seconds": 1.5, "at": "2026-11-21T00:02:03.000004Z"},` + "\n" +
				`  {"name": "täg<&>", "age_seconds": 3600, "at": null}` + "\n]\n"},
		{"no records are an empty array", output.JSON, nil, "[]\n"},
		{"CSV has a header and quotes", output.CSV, records,
			"name,age_seconds,at\n" +
				`"o'brien, ""x""",1.5,2026-11-21T00:02:03.000004Z` + "\n" +
				"täg<&>,3600,\n"},
		{"empty CSV is a header", output.CSV, nil, "name,age_seconds,at\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := write(t, c.format, c.records...); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestAReportIsOneObject(t *testing.T) {
	for _, records := range [][]record{nil, {{name: "a"}}, {{name: "a"}, {name: "b"}}} {
		var b strings.Builder
		w := output.NewReport(&b, output.JSON, output.Palette{}, "found", columns)
		for _, r := range records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.CloseWith(output.Field{Name: "equal", Value: 3}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Found []struct{ Name string }
			Equal int
		}
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		if len(got.Found) != len(records) || got.Found == nil || got.Equal != 3 {
			t.Errorf("%d records: got %s", len(records), b.String())
		}
	}
}

func TestOneRecord(t *testing.T) {
	for format, want := range map[output.Format]string{
		output.Table: "NAME         x\nAGE SECONDS  1s\n",
		output.JSON:  `{"name": "x", "age_seconds": 1, "at": null}` + "\n",
		output.CSV:   "name,age_seconds,at\nx,1,\n",
	} {
		var b strings.Builder
		if err := output.One(&b, format, output.Palette{}, columns, record{name: "x", age: time.Second}); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: got %q, want %q", format, b.String(), want)
		}
	}
}

func TestALongTableKeepsItsColumns(t *testing.T) {
	var records []record
	for i := range 2500 {
		records = append(records, record{name: fmt.Sprintf("name-%04d", i)})
	}
	lines := strings.Split(strings.TrimSpace(write(t, output.Table, records...)), "\n")
	if len(lines) != 2501 {
		t.Fatalf("%d lines, want one header and 2500 rows", len(lines))
	}
	for _, line := range lines[1:] {
		if len(line) != len(lines[1]) {
			t.Fatalf("%q is not as wide as %q", line, lines[1])
		}
	}
}

func TestAFullDiskIsReported(t *testing.T) {
	full := errors.New("no space left on device")
	for _, format := range output.Formats {
		w := output.NewWriter(writerFunc(func([]byte) (int, error) { return 0, full }), output.Format(format), output.Palette{}, columns)
		var err error
		for range 10_000 {
			if err = w.Write(record{name: "x"}); err != nil {
				break
			}
		}
		if !errors.Is(err, full) {
			t.Errorf("%s: writing says %v", format, err)
		}
		if err := w.Close(); !errors.Is(err, full) {
			t.Errorf("%s: closing says %v", format, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"refs/heads/o'brien":      "refs/heads/o'brien",
		"refs/heads/größe-日本":     "refs/heads/größe-日本",
		"a\x1b[2Jb":               `a\x1b[2Jb`,
		"a\nb\tc\x00":             `a\nb\tc\x00`,
		"refs/heads/\u202egnp":    `refs/heads/\u202egnp`,
		"bad \xff utf-8":          `bad \xff utf-8`,
		"c1 \u009b control":       `c1 \u009b control`,
		`it's "quoted" \ plain`:   `it's "quoted" \ plain`,
		"quote ' and \x07 a bell": `quote ' and \a a bell`,
	} {
		if got := output.Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzOutput(f *testing.F) {
	f.Add("refs/heads/main")
	f.Add("a\x1b[2J\xff\n,\"")
	f.Fuzz(func(t *testing.T, name string) {
		r := record{name: name}
		if table := write(t, output.Table, r); strings.Count(table, "\n") != 2 || strings.ContainsRune(table, '\x1b') {
			t.Errorf("table: %q", table)
		}
		var got []struct{ Name string }
		if err := json.Unmarshal([]byte(write(t, output.JSON, r)), &got); err != nil || len(got) != 1 {
			t.Errorf("JSON: %v", err)
		}
		rows, err := csv.NewReader(strings.NewReader(write(t, output.CSV, r))).ReadAll()
		if err != nil || len(rows) != 2 {
			t.Errorf("CSV: %v, %q", err, rows)
		}
	})
}

func TestPalette(t *testing.T) {
	if got := (output.Palette{}).Red("x"); got != "x" {
		t.Errorf("off: %q", got)
	}
	if got := (output.Palette{On: true}).Red("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("on: %q", got)
	}
}

func TestAFormatIsAFlagValue(t *testing.T) {
	var f output.Format
	for _, ok := range output.Formats {
		if err := f.Set(ok); err != nil || f.String() != ok {
			t.Errorf("%s: %v", ok, err)
		}
	}
	if err := f.Set("yaml"); err == nil || !strings.Contains(err.Error(), "table, json, csv") {
		t.Errorf("yaml: %v", err)
	}
}

func TestNoFormatSendsATerminalWhatItWouldObey(t *testing.T) {
	nasty := "a\u009b2Jb\u202egnp\x1b[2J\x7f\U000e0001"
	for _, f := range []output.Format{output.Table, output.JSON, output.CSV} {
		got := write(t, f, record{name: nasty})
		for _, r := range got {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s holds %U: %q", f, r, got)
			}
		}
	}
	var rows []struct{ Name string }
	if err := json.Unmarshal([]byte(write(t, output.JSON, record{name: nasty})), &rows); err != nil || rows[0].Name != nasty {
		t.Errorf("JSON loses something: %v, %+v", err, rows)
	}
}
