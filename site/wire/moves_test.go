package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

const reads = "refdb-moves 1\nguard " + guardID + "\n"

func readBeginMoves(r *bufio.Reader) (wire.Message, error) { return wire.ReadBeginMoves(r) }
func readFromReader(r *bufio.Reader) (wire.Message, error) { return wire.ReadFromReader(r) }

func TestAMessageAboutMovesArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    wire.Message
		text string
		read func(*bufio.Reader) (wire.Message, error)
	}{
		"a first message":              {wire.BeginMoves{Guard: guardID, After: "E-1-20"}, reads + "after E-1-20\n\n", readBeginMoves},
		"the first one of all":         {wire.BeginMoves{Guard: guardID}, reads + "after -\n\n", readBeginMoves},
		"a later one":                  {wire.After{Place: "E-1-20"}, "after E-1-20\n\n", readFromReader},
		"from the present on":          {wire.After{}, "after -\n\n", readFromReader},
		"nothing":                      {wire.Moves{Place: "E-1-20"}, "moves E-1-20\n\n", wiretest.ReadMoves},
		"a reset":                      {wire.Reset{Place: "E-1-20"}, "reset E-1-20\n\n", wiretest.ReadMoves},
		"a rejection":                  {wire.Rejected{Reason: wire.RejectUnwritable, Lines: []string{"one", "two"}}, "rejected unwritable\none\ntwo\n\n", wiretest.ReadMoves},
		"a fault":                      {wire.Fault{Text: "malformed: x"}, "error malformed: x\n\n", wiretest.ReadMoves},
		"moves of all kinds, in order": {wire.Moves{Place: "p", Entries: []wire.Move{{guardID, "refs/heads/\xff", "/srv/g it/a.git"}, {"", "HEAD", "/b"}, {"", "", "/c"}}}, "moves p\n" + guardID + " refs/heads/\xff /srv/g it/a.git\n- HEAD /b\n- - /c\n\n", wiretest.ReadMoves},
	} {
		t.Run(name, func(t *testing.T) {
			isReadAsItIsSent(t, c.m, c.text, c.read)
		})
	}
}

func TestWhatIsNoMessageAboutMovesEndsTheConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		read func(*bufio.Reader) (wire.Message, error)
		is   error
		says string
	}{
		"nothing":                       {"", readFromReader, io.EOF, ""},
		"half a message":                {"after x\n", readFromReader, wire.ErrMalformed, "breaks off"},
		"another protocol":              {begun + "ready\n\n", readBeginMoves, wire.ErrMalformed, "refdb-session 1"},
		"a later version":               {"refdb-moves 2\nsecret 1\n\n", readBeginMoves, wire.ErrVersion, `version "2"`},
		"no guard":                      {"refdb-moves 1\nafter -\n\n", readBeginMoves, wire.ErrMalformed, "guard and after"},
		"a guard that is none":          {"refdb-moves 1\nguard me\nafter -\n\n", readBeginMoves, wire.ErrMalformed, "32"},
		"no place":                      {reads + "\n", readBeginMoves, wire.ErrMalformed, "guard and after"},
		"a place that is nothing":       {reads + "after \n\n", readBeginMoves, wire.ErrMalformed, "nothing"},
		"the lines in another order":    {"refdb-moves 1\nafter -\nguard " + guardID + "\n\n", readBeginMoves, wire.ErrMalformed, "after -"},
		"a line more":                   {reads + "after -\nready\n\n", readBeginMoves, wire.ErrMalformed, "3 lines"},
		"a place of two words":          {"after a b\n\n", readFromReader, wire.ErrMalformed, "word"},
		"a place of 201 bytes":          {"after " + strings.Repeat("x", 201) + "\n\n", readFromReader, wire.ErrMalformed, "200"},
		"after nothing":                 {"after \n\n", readFromReader, wire.ErrMalformed, "after"},
		"after with lines":              {"after x\ny\n\n", readFromReader, wire.ErrMalformed, "after"},
		"a session's message":           {"report 1\n\n", readFromReader, wire.ErrMalformed, "report 1"},
		"an answer of sessions":         {"welcome\n\n", wiretest.ReadMoves, wire.ErrMalformed, "welcome"},
		"moves without a place":         {"moves \n\n", wiretest.ReadMoves, wire.ErrMalformed, "place"},
		"moves at the present":          {"moves -\n\n", wiretest.ReadMoves, wire.ErrMalformed, "place"},
		"a move by nobody":              {"moves p\n refs/x /a\n\n", wiretest.ReadMoves, wire.ErrMalformed, "moves"},
		"a move by somebody else":       {"moves p\nme refs/x /a\n\n", wiretest.ReadMoves, wire.ErrMalformed, "who"},
		"a move of nothing":             {"moves p\n-  /a\n\n", wiretest.ReadMoves, wire.ErrMalformed, "moves"},
		"a move nowhere":                {"moves p\n- refs/x\n\n", wiretest.ReadMoves, wire.ErrMalformed, "directory"},
		"a move in a relative place":    {"moves p\n- refs/x a\n\n", wiretest.ReadMoves, wire.ErrMalformed, "absolute path"},
		"a reset with lines":            {"reset p\nx\n\n", wiretest.ReadMoves, wire.ErrMalformed, "reset"},
		"a reset to the present":        {"reset -\n\n", wiretest.ReadMoves, wire.ErrMalformed, "place"},
		"a rejection without a reason":  {"rejected \n\n", wiretest.ReadMoves, wire.ErrMalformed, "reason"},
		"a rejection of several words":  {"rejected a b\n\n", wiretest.ReadMoves, wire.ErrMalformed, "reason"},
		"a question of 64 MB, or worse": {"after " + strings.Repeat("x", wire.MaxMessage), readFromReader, wire.ErrTooLarge, "64 MB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := c.read(bufio.NewReader(strings.NewReader(c.text)))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %+v, %v, want %v with %q", m, err, c.is, c.says)
			}
			if c.is != io.EOF && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 400) {
				t.Errorf("not one short line: %q", err)
			}
		})
	}
}

func TestAMessageAboutMovesThatCouldNotBeReadIsNotSent(t *testing.T) {
	t.Parallel()
	for _, m := range []wire.Message{
		wire.BeginMoves{}, wire.BeginMoves{Guard: guardID, After: "a b"}, wire.After{Place: "a\nb"}, wire.After{Place: "-"}, wire.Moves{}, wire.Reset{},
		wire.Moves{Place: "p", Entries: []wire.Move{{}}}, wire.Moves{Place: "p", Entries: []wire.Move{{Ref: "refs/a b", Dir: "/a"}}},
		wire.Moves{Place: "p", Entries: []wire.Move{{Ref: "-", Dir: "/a"}}}, wire.Moves{Place: "p", Entries: []wire.Move{{Who: "-", Dir: "/a"}}},
		wire.Moves{Place: "p", Entries: []wire.Move{{Ref: "refs/x", Dir: "/a\nb"}}},
	} {
		var buf bytes.Buffer
		if err := wiretest.Write(&buf, m); !errors.Is(err, wire.ErrMalformed) || buf.Len() != 0 {
			t.Errorf("%+v: %v, %d bytes sent", m, err, buf.Len())
		}
	}
}

func FuzzReadBeginMoves(f *testing.F) {
	f.Add([]byte(reads + "after -\n\n"))
	f.Add([]byte("refdb-moves 2\n\n"))
	fuzzMessages(f, readBeginMoves)
}

func FuzzReadFromReader(f *testing.F) {
	f.Add([]byte("after E-1-20\n\nafter -\n\n"))
	fuzzMessages(f, readFromReader)
}

func FuzzReadMoves(f *testing.F) {
	f.Add([]byte("moves p\n" + guardID + " refs/heads/x /srv/g it\n- - /c\n\n"))
	f.Add([]byte("reset p\n\nrejected starting\nx\n\nerror x\n\n"))
	fuzzMessages(f, wiretest.ReadMoves)
}
