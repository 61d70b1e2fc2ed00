package wire_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	a    = "1111111111111111111111111111111111111111"
	b    = "abcdef0123456789abcdef0123456789abcdef01"
	zero = "0000000000000000000000000000000000000000"
)

func sent(tb testing.TB, m interface{ Write(io.Writer) error }) string {
	tb.Helper()
	var buf bytes.Buffer
	if err := m.Write(&buf); err != nil {
		tb.Fatal(err)
	}
	return buf.String()
}

func TestARequestArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		q    wire.Request
		text string
	}{
		"all of it": {
			wire.Request{State: wire.StatePrepared, Dir: "/srv/git/a b.git", Limit: 4999 * time.Millisecond, Body: []byte(zero + " " + a + " refs/heads/\xff\n")},
			"refdb-hook 1\nstate prepared\ndir /srv/git/a b.git\nlimit 4999\n\n" + zero + " " + a + " refs/heads/\xff\n",
		},
		"the least": {
			wire.Request{State: wire.StateStatus, Body: []byte{}},
			"refdb-hook 1\nstate status\n\n",
		},
		"an empty line in the body": {
			wire.Request{State: wire.StateAborted, Dir: "/r", Body: []byte("\n\nstate x\n\n")},
			"refdb-hook 1\nstate aborted\ndir /r\n\n\n\nstate x\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sent(t, c.q); got != c.text {
				t.Errorf("sent %q, want %q", got, c.text)
			}
			got, err := wire.ReadRequest(iotest.OneByteReader(strings.NewReader(c.text)))
			if err != nil || !reflect.DeepEqual(got, c.q) {
				t.Errorf("got %+v, %v, want %+v", got, err, c.q)
			}
		})
	}
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	t.Parallel()
	const start = "refdb-hook 1\nstate prepared\n"
	for name, c := range map[string]struct {
		text string
		is   error
		says string
	}{
		"nothing":               {"", wire.ErrMalformed, `begin with ""`},
		"something else":        {"GET / HTTP/1.1\r\n\r\n", wire.ErrMalformed, "GET / HTTP"},
		"a newer version":       {"refdb-hook 4\nsecret 1\n\n", wire.ErrVersion, `version "4" of the protocol, the daemon 3`},
		"a version cut off":     {"refdb-hook 1", wire.ErrMalformed, "refdb-hook 1"},
		"no end of the header":  {start, wire.ErrMalformed, "ends early"},
		"half a line":           {start + "dir /sr", wire.ErrMalformed, "ends early"},
		"an unknown key":        {start + "color red\n\n", wire.ErrMalformed, "color red"},
		"a key twice":           {start + "state aborted\n\n", wire.ErrMalformed, "state aborted"},
		"no state":              {"refdb-hook 1\ndir /r\n\n", wire.ErrMalformed, "state"},
		"a state of two words":  {"refdb-hook 1\nstate a b\n\n", wire.ErrMalformed, "state"},
		"a relative directory":  {start + "dir srv/git\n\n", wire.ErrMalformed, "absolute path"},
		"an empty directory":    {start + "dir \n\n", wire.ErrMalformed, "dir"},
		"replica of what":       {start + "replica 0\n\n", wire.ErrMalformed, "replica 0"},
		"a limit of words":      {start + "limit soon\n\n", wire.ErrMalformed, "limit soon"},
		"a negative limit":      {start + "limit -1\n\n", wire.ErrMalformed, "limit -1"},
		"an immense limit":      {start + "limit 99999999999999999\n\n", wire.ErrMalformed, "limit 9"},
		"an endless header":     {start + "dir /" + strings.Repeat("x", 2<<20), wire.ErrTooLarge, "1 MB"},
		"a header of 1 MB more": {start + "dir /" + strings.Repeat("x", 1<<20) + "\n\n", wire.ErrTooLarge, "1 MB"},
		"a body of 64 MB more":  {start + "\n" + strings.Repeat("x", 64<<20+1), wire.ErrTooLarge, "64 MB"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && len(c.text) > 64<<20 {
				t.Skip("left out by -short: 64 MB under the race detector, some seconds; make test-all runs it")
			}
			_, err := wire.ReadRequest(strings.NewReader(c.text))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %v with %q", err, c.is, c.says)
			}
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
				t.Errorf("not one short line: %q", err)
			}
		})
	}
}

func TestTheLargestBodyArrives(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: 64 MB under the race detector, some seconds; make test-all runs it")
	}
	q := wire.Request{State: wire.StatePrepared, Dir: "/r", Body: bytes.Repeat([]byte("x"), 64<<20)}
	got, err := wire.ReadRequest(strings.NewReader(sent(t, q)))
	if err != nil || len(got.Body) != len(q.Body) {
		t.Fatalf("%d bytes, %v", len(got.Body), err)
	}
	q.Body = append(q.Body, 'x')
	if err := q.Write(io.Discard); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
}

func TestARequestThatCouldNotBeReadIsNotSent(t *testing.T) {
	t.Parallel()
	for _, q := range []wire.Request{
		{},
		{State: "a\nb"},
		{State: wire.StatePrepared, Dir: "relative"},
		{State: wire.StatePrepared, Dir: "/srv/new\nline"},
		{State: wire.StatePrepared, Dir: "/" + strings.Repeat("x", 1<<20)},
	} {
		var buf bytes.Buffer
		if err := q.Write(&buf); !errors.Is(err, wire.ErrMalformed) || buf.Len() != 0 {
			t.Errorf("%.50q: %v, %d bytes sent", q.Dir, err, buf.Len())
		}
	}
}

func TestAResponseArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for text, p := range map[string]wire.Response{
		"ok\n":                        {OK: true},
		"refused\n":                   {},
		"ok\n{\"a\": 1}\n":            {OK: true, Lines: []string{`{"a": 1}`}},
		"refused\none\n\nthree\xff\n": {Lines: []string{"one", "", "three\xff"}},
	} {
		if got := sent(t, p); got != text {
			t.Errorf("sent %q, want %q", got, text)
		}
		got, err := wire.ReadResponse(iotest.OneByteReader(strings.NewReader(text)), nil)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, p)
		}
	}
}

func TestAnAnswerWithoutAVerdictIsAnError(t *testing.T) {
	t.Parallel()
	cut := errors.New("connection cut")
	for name, c := range map[string]struct {
		r  io.Reader
		is error
	}{
		"nothing":          {strings.NewReader(""), io.EOF},
		"half a word":      {strings.NewReader("o"), wire.ErrMalformed},
		"no end of line":   {strings.NewReader("ok"), wire.ErrMalformed},
		"another word":     {strings.NewReader("okay\n"), wire.ErrMalformed},
		"an empty line":    {strings.NewReader("\nok\n"), wire.ErrMalformed},
		"garbage":          {strings.NewReader(strings.Repeat("\x00", 1000)), wire.ErrMalformed},
		"cut off later":    {io.MultiReader(strings.NewReader("ok\nmore"), iotest.ErrReader(cut)), cut},
		"more than 64 MB":  {strings.NewReader("ok\n" + strings.Repeat("x", 64<<20)), wire.ErrTooLarge},
		"cut off at once":  {iotest.ErrReader(cut), cut},
		"the wrong letter": {strings.NewReader("OK\n"), wire.ErrMalformed},
	} {
		if p, err := wire.ReadResponse(c.r, nil); !errors.Is(err, c.is) || p.OK {
			t.Errorf("%s: %+v, %v, want %v", name, p, err, c.is)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("f", 64)
	for name, c := range map[string]struct {
		text string
		want []wire.Line // nil: refused
	}{
		"none":                {"", []wire.Line{}},
		"several":             {a + " " + b + " refs/heads/x\n" + zero + " " + a + " HEAD\n", []wire.Line{{a, b, "refs/heads/x"}, {zero, a, "HEAD"}}},
		"names are bytes":     {a + " " + b + " refs/heads/\xff\xfe'\"\n", []wire.Line{{a, b, "refs/heads/\xff\xfe'\""}}},
		"SHA-256":             {long + " " + long + " refs/x\n", []wire.Line{{long, long, "refs/x"}}},
		"a symbolic ref":      {zero + " ref:refs/heads/m HEAD\n", []wire.Line{{zero, "ref:refs/heads/m", "HEAD"}}},
		"from a symbolic ref": {"ref:refs/heads/m " + zero + " HEAD\n", []wire.Line{{"ref:refs/heads/m", zero, "HEAD"}}},
		"no line break":       {a + " " + b + " refs/heads/x", nil},
		"a second one cut":    {a + " " + b + " refs/x\n" + a, nil},
		"an empty line":       {"\n", nil},
		"two fields":          {a + " " + b + "\n", nil},
		"no name":             {a + " " + b + " \n", nil},
		"four fields":         {a + " " + b + " refs/x y\n", nil},
		"two blanks":          {a + "  " + b + " refs/x\n", nil},
		"a tab":               {a + "\t" + b + "\trefs/x\n", nil},
		"CRLF":                {a + " " + b + " refs/x\r\n", nil},
		"a NUL":               {a + " " + b + " refs/\x00x\n", nil},
		"upper case":          {strings.ToUpper(b) + " " + a + " refs/x\n", nil},
		"39 digits":           {a[1:] + " " + b + " refs/x\n", nil},
		"no hex":              {strings.Repeat("g", 40) + " " + b + " refs/x\n", nil},
		"two formats":         {a + " " + long + " refs/x\n", nil},
		"a target of nothing": {a + " ref: refs/x\n", nil},
		"rubbish":             {"hello\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.ParseLines([]byte(c.text))
			if c.want != nil && (err != nil || !reflect.DeepEqual(got, c.want)) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if c.want == nil && !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("got %q, %v, want it refused", got, err)
			}
		})
	}
	_, err := wire.ParseLines([]byte(a + " " + b + " refs/x\nrubbish\n"))
	if err == nil || !strings.Contains(err.Error(), `line 2, "rubbish", is not OLD NEW REF`) {
		t.Errorf("the wrong line is not named: %v", err)
	}
}

func TestWhatALineIsAbout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line                       wire.Line
		oldZero, newZero, symbolic bool
	}{
		{wire.Line{Old: zero, New: a}, true, false, false},
		{wire.Line{Old: a, New: zero}, false, true, false},
		{wire.Line{Old: strings.Repeat("0", 64), New: strings.Repeat("0", 64)}, true, true, false},
		{wire.Line{Old: zero, New: "ref:refs/heads/main"}, true, false, true},
		{wire.Line{Old: "ref:0", New: a}, false, false, true},
	} {
		if c.line.OldZero() != c.oldZero || c.line.NewZero() != c.newZero || c.line.Symbolic() != c.symbolic {
			t.Errorf("%+v: %v %v %v", c.line, c.line.OldZero(), c.line.NewZero(), c.line.Symbolic())
		}
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("refdb-hook 1\nstate prepared\ndir /srv/git/x.git\nreplica 1\nlimit 5000\n\n" + a + " " + b + " refs/x\n"))
	f.Add([]byte("refdb-hook 2\n\n"))
	f.Add([]byte("refdb-hook 1\nstate x\n\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		q, err := wire.ReadRequest(bytes.NewReader(text))
		if err != nil {
			for _, known := range []error{wire.ErrMalformed, wire.ErrVersion, wire.ErrTooLarge} {
				if errors.Is(err, known) {
					return
				}
			}
			t.Fatalf("an error of no kind: %v", err)
		}
		if q.State == "" || !bytes.HasSuffix(text, q.Body) || q.Limit < 0 {
			t.Fatalf("%q was read as %+v", text, q)
		}
		again, err := wire.ReadRequest(strings.NewReader(sent(t, q)))
		if err != nil || !reflect.DeepEqual(again, q) {
			t.Fatalf("%+v was sent and became %+v, %v", q, again, err)
		}
	})
}

// What a daemon, or whoever sits at its socket, answers is read or refused, and never taken for leave.
func FuzzReadResponse(f *testing.F) {
	f.Add([]byte("ok\n"))
	f.Add([]byte("refused\nrefs/heads/x: no\n"))
	f.Add([]byte("wait a little\nok\n"))
	f.Add([]byte("ok"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := wire.ReadResponse(iotest.OneByteReader(bytes.NewReader(text)), func(string) {})
		whole, again := wire.ReadResponse(bytes.NewReader(text), func(string) {})
		if (err == nil) != (again == nil) || !reflect.DeepEqual(p, whole) {
			t.Fatalf("%q is %+v, %v, and byte by byte %+v, %v", text, whole, again, p, err)
		}
		if p.OK && !bytes.HasPrefix(text, []byte("ok\n")) && !bytes.Contains(text, []byte("\nok\n")) {
			t.Fatalf("%q gives leave", text)
		}
	})
}

func FuzzParseLines(f *testing.F) {
	f.Add([]byte(a + " " + b + " refs/heads/x\n" + zero + " ref:refs/heads/m HEAD\n"))
	f.Add([]byte(a + " " + b))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := wire.ParseLines(text)
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		// Nothing is lost, added or read in another way.
		var all strings.Builder
		for _, l := range lines {
			all.WriteString(l.Old + " " + l.New + " " + l.Ref + "\n")
		}
		if all.String() != string(text) {
			t.Fatalf("%q was read as %q", text, lines)
		}
	})
}

// Commands ask daemons of the version before as well: only what names a process is of the newer one.
func TestARequestThatNamesItsProcessIsOfTheNewerVersion(t *testing.T) {
	t.Parallel()
	q := wire.Request{State: wire.StatePrepared, Dir: "/r", Process: &wire.Process{PID: 12, Parent: 11, ParentStart: "4711"}, Body: []byte{}}
	const text = "refdb-hook 3\nstate prepared\ndir /r\nprocess 12 11 4711\n\n"
	if got := sent(t, q); got != text {
		t.Errorf("sent %q, want %q", got, text)
	}
	if got, err := wire.ReadRequest(strings.NewReader(text)); err != nil || !reflect.DeepEqual(got, q) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, process := range []string{"", "12", "12 11", "12 11 ", "12 11 4711 5", "x 11 4711", "0 11 4711", "12 -1 4711"} {
		if got, err := wire.ReadRequest(strings.NewReader("refdb-hook 3\nstate prepared\nprocess " + process + "\n\n")); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("process %q: %+v, %v", process, got, err)
		}
	}
}

// The hook of an earlier version reads one answer, and waits for it as long as it said.
func TestOnlyAHookOfThisVersionIsToldToWait(t *testing.T) {
	t.Parallel()
	for version, patient := range map[string]bool{"1": false, "2": false, "3": true} {
		q, err := wire.ReadRequest(strings.NewReader("refdb-hook " + version + "\nstate update\ndir /r\nprocess 12 11 4711\n\n"))
		if err != nil || version != "1" && q.Patient() != patient {
			t.Errorf("version %s: %v, patient %v", version, err, q.Patient())
		}
	}
	var b strings.Builder
	for _, text := range []string{"12 MiB stored", ""} {
		if err := wire.Wait(&b, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := (wire.Response{Lines: []string{"wait a moment"}}).Write(&b); err != nil {
		t.Fatal(err)
	}
	var told []string
	got, err := wire.ReadResponse(iotest.OneByteReader(strings.NewReader(b.String())), func(text string) { told = append(told, text) })
	if err != nil || got.OK || !slices.Equal(got.Lines, []string{"wait a moment"}) || !slices.Equal(told, []string{"12 MiB stored", ""}) {
		t.Errorf("got %+v, %v, told %q", got, err, told)
	}
}

// Hooks and daemons of different versions meet, so the text stays as it is. Hooks of earlier versions show it to the
// pusher.
func TestADaemonThatStopsIsRecognized(t *testing.T) {
	t.Parallel()
	const text = "the site daemon is stopping: nothing was changed, retry in a few seconds"
	for answer, want := range map[string]bool{
		"refused\n" + text + "\n": true, "ok\n" + text + "\n": false, "refused\n": false, "refused\nrefs/heads/x: " + text + "\n": false,
		"refused\n" + text + "\nand more\n": false,
	} {
		p, err := wire.ReadResponse(strings.NewReader(answer), func(string) {})
		if err != nil || p.Stopping() != want {
			t.Errorf("%q: %t, %v", answer, p.Stopping(), err)
		}
	}
}
