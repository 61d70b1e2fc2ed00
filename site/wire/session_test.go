package wire_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

const guardID = "0123456789abcdef0123456789abcdef"

// begun is a first message, written out.
const begun = "refdb-session 1\nguard " + guardID + "\nnumber 1\nname Gerrit 3.9.4\nroot /srv/git\n"

func reader(text string) *bufio.Reader {
	return bufio.NewReader(iotest.OneByteReader(strings.NewReader(text)))
}

func readBegin(r *bufio.Reader) (wire.Message, error) { return wire.ReadBegin(r) }

func TestAMessageArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	one := wire.Line{Old: zero, New: a, Ref: "refs/heads/x"}
	for name, c := range map[string]struct {
		m    wire.Message
		text string
		read func(*bufio.Reader) (wire.Message, error)
	}{
		"the least first message": {wire.Begin{Guard: guardID, Number: 1, Name: "Gerrit 3.9.4", Root: "/srv/git"}, begun + "ready\n\n", readBegin},
		"a first message with all": {
			wire.Begin{Guard: guardID, Number: 12, Name: "Gerrit", Root: "/srv/g it", Instance: "one", Server: "two words", Open: []wire.Open{
				{TX: "7", Dir: "/srv/g it/a.git", Lines: []wire.Line{one, {Old: a, New: zero, Ref: "refs/heads/\xff"}}}, {TX: "a-Z", Dir: "/b", Lines: []wire.Line{one}}}},
			"refdb-session 1\nguard " + guardID + "\nnumber 12\nname Gerrit\nroot /srv/g it\ninstance one\nserver two words\nopen 7 /srv/g it/a.git\n" +
				zero + " " + a + " refs/heads/x\n" + a + " " + zero + " refs/heads/\xff\nopen a-Z /b\n" + zero + " " + a + " refs/heads/x\nready\n\n", readBegin},
		"a welcome": {wire.Welcome{Site: "eu-1", Root: "/srv/git", LockWait: 2 * time.Second, Timeout: 6 * time.Second},
			"welcome\nsite eu-1\nroot /srv/git\nlock-wait 2000\ntimeout 6000\ndatabase ok\n\n", wiretest.ReadWelcome},
		"a welcome without the database": {wire.Welcome{Site: "eu-1", Root: "/", Database: "it does not answer"},
			"welcome\nsite eu-1\nroot /\nlock-wait 0\ntimeout 0\ndatabase it does not answer\n\n", wiretest.ReadWelcome},
		"a rejection": {wire.Rejected{Reason: wire.RejectRoot, Lines: []string{"one", "two"}}, "rejected root\none\ntwo\n\n", wiretest.ReadWelcome},
		"an announcement": {wire.Announce{TX: "1", Limit: 5 * time.Second, Dir: "/srv/a b.git", By: "by whom", Lines: []wire.Line{one, {Old: zero, New: "ref:refs/heads/m", Ref: "HEAD"}}},
			"announce 1 5000 /srv/a b.git\nby by whom\n" + zero + " " + a + " refs/heads/x\n" + zero + " ref:refs/heads/m HEAD\n\n", wire.ReadFromGuard},
		"nobody's announcement":   {wire.Announce{TX: "1", Dir: "/a", Lines: []wire.Line{one}}, "announce 1 0 /a\n" + zero + " " + a + " refs/heads/x\n\n", wire.ReadFromGuard},
		"a welcome with projects": {wire.Welcome{Site: "eu-1", Root: "/", Projects: 1}, "welcome\nsite eu-1\nroot /\nlock-wait 0\ntimeout 0\ndatabase ok\nprojects 1\n\n", wiretest.ReadWelcome},
		"a creation":              {wire.Create{TX: "1", Limit: 5 * time.Second, Dir: "/srv/a b.git"}, "create 1 5000 /srv/a b.git\n\n", wire.ReadFromGuard},
		"a deletion":              {wire.Deleted{TX: "1", Limit: time.Second, Dir: "/srv/a b.git", ID: "A B"}, "deleted 1 1000 /srv/a b.git\nid A B\n\n", wire.ReadFromGuard},
		"a report":                {wire.Report{TX: "1"}, "report 1\n\n", wire.ReadFromGuard},
		"a guard's ping":          {wire.Ping{}, "ping\n\n", wire.ReadFromGuard},
		"a guard's pong":          {wire.Pong{}, "pong\n\n", wire.ReadFromGuard},
		"a wait":                  {wire.WaitOn{TX: "1", Text: "12 MiB"}, "wait 1 12 MiB\n\n", wiretest.ReadFromDaemon},
		"a wait without text":     {wire.WaitOn{TX: "1"}, "wait 1 \n\n", wiretest.ReadFromDaemon},
		"an OK":                   {wire.Granted{TX: "1"}, "ok 1\n\n", wiretest.ReadFromDaemon},
		"a refusal":               {wire.Refused{TX: "1", Kind: wire.Retry, Reason: "behind", Lines: []string{"fetch"}}, "refused 1 retry behind\nfetch\n\n", wiretest.ReadFromDaemon},
		"a settlement":            {wire.Settled{TX: "1", Values: []wire.RefValue{{Value: a, Ref: "refs/x"}, {Value: "ref:refs/x", Ref: "HEAD"}}}, "settled 1\n" + a + " refs/x\nref:refs/x HEAD\n\n", wiretest.ReadFromDaemon},
		"an empty settlement":     {wire.Settled{TX: "1"}, "settled 1\n\n", wiretest.ReadFromDaemon},
		"a daemon's ping":         {wire.Ping{}, "ping\n\n", wiretest.ReadFromDaemon},
		"a fault":                 {wire.Fault{Text: "malformed: x"}, "error malformed: x\n\n", wiretest.ReadFromDaemon},
	} {
		t.Run(name, func(t *testing.T) {
			isReadAsItIsSent(t, c.m, c.text, c.read)
		})
	}
}

// isReadAsItIsSent compares what is sent of m with text, and what read makes of that, and no more, with m.
func isReadAsItIsSent(t *testing.T, m wire.Message, text string, read func(*bufio.Reader) (wire.Message, error)) {
	t.Helper()
	var buf bytes.Buffer
	if err := wiretest.Write(&buf, m); err != nil || buf.String() != text {
		t.Fatalf("sent %q, %v, want %q", buf.String(), err, text)
	}
	r := reader(text + "rest")
	if got, err := read(r); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, %v, want %+v", got, err, m)
	}
	if rest, err := io.ReadAll(r); err != nil || string(rest) != "rest" {
		t.Errorf("it left %q, %v", rest, err)
	}
}

func TestWhatIsNoMessageEndsTheSession(t *testing.T) {
	t.Parallel()
	move := zero + " " + a + " refs/heads/x\n"
	tooMuch := strings.Repeat("x", wire.MaxMessage)
	for name, c := range map[string]struct {
		text string
		read func(*bufio.Reader) (wire.Message, error)
		is   error
		says string
	}{
		"nothing":                      {"", wire.ReadFromGuard, io.EOF, ""},
		"an empty line":                {"\n", wire.ReadFromGuard, wire.ErrMalformed, "empty line"},
		"half a line":                  {"repo", wire.ReadFromGuard, wire.ErrMalformed, "breaks off"},
		"half a message":               {"report 1\n", wire.ReadFromGuard, wire.ErrMalformed, "breaks off"},
		"an unknown verb":              {"hello\n\n", wire.ReadFromGuard, wire.ErrMalformed, "hello"},
		"a daemon's verb":              {"ok 1\n\n", wire.ReadFromGuard, wire.ErrMalformed, "ok 1"},
		"a guard's verb":               {"report 1\n\n", wiretest.ReadFromDaemon, wire.ErrMalformed, "report 1"},
		"a ping with more":             {"ping\nx\n\n", wire.ReadFromGuard, wire.ErrMalformed, "ping"},
		"a report with lines":          {"report 1\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "report 1"},
		"a report of nothing":          {"report \n\n", wire.ReadFromGuard, wire.ErrMalformed, "1 to 64"},
		"a transaction with a colon":   {"report a:b\n\n", wire.ReadFromGuard, wire.ErrMalformed, "1 to 64"},
		"a transaction of 65 letters":  {"report " + strings.Repeat("x", 65) + "\n\n", wire.ReadFromGuard, wire.ErrMalformed, "1 to 64"},
		"an announcement of nothing":   {"announce 1 5000 /a\n\n", wire.ReadFromGuard, wire.ErrMalformed, "without a ref"},
		"an announcement of by alone":  {"announce 1 5000 /a\nby x\n\n", wire.ReadFromGuard, wire.ErrMalformed, "without a ref"},
		"by twice":                     {"announce 1 5000 /a\nby x\nby y\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "by y"},
		"by nobody":                    {"announce 1 5000 /a\nby \n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "announce"},
		"a limit of words":             {"announce 1 soon /a\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "announce"},
		"a limit with a zero before":   {"announce 1 05 /a\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "announce"},
		"a relative directory":         {"announce 1 5000 a\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "absolute path"},
		"no directory":                 {"announce 1 5000\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "absolute path"},
		"a line that is none":          {"announce 1 5000 /a\n" + move + "rubbish\n\n", wire.ReadFromGuard, wire.ErrMalformed, "rubbish"},
		"CRLF":                         {"announce 1 5000 /a\r\n" + zero + " " + a + " refs/heads/x\r\n\r\n", wire.ReadFromGuard, wire.ErrMalformed, ""},
		"a creation with a ref":        {"create 1 5000 /a\n" + move + "\n", wire.ReadFromGuard, wire.ErrMalformed, "create"},
		"a creation without a limit":   {"create 1 /a\n\n", wire.ReadFromGuard, wire.ErrMalformed, "create"},
		"a creation of no directory":   {"create 1 5000 a\n\n", wire.ReadFromGuard, wire.ErrMalformed, "absolute path"},
		"a creation by a colon":        {"create a:b 5000 /a\n\n", wire.ReadFromGuard, wire.ErrMalformed, "1 to 64"},
		"a deletion without an ID":     {"deleted 1 5000 /a\n\n", wire.ReadFromGuard, wire.ErrMalformed, "deleted"},
		"a deletion of an empty ID":    {"deleted 1 5000 /a\nid \n\n", wire.ReadFromGuard, wire.ErrMalformed, "id"},
		"a deletion with more":         {"deleted 1 5000 /a\nid x\nid y\n\n", wire.ReadFromGuard, wire.ErrMalformed, "deleted"},
		"a deletion of no directory":   {"deleted 1 5000 a\nid x\n\n", wire.ReadFromGuard, wire.ErrMalformed, "absolute path"},
		"a message of 64 MB":           {"report " + tooMuch + "\n\n", wire.ReadFromGuard, wire.ErrTooLarge, "64 MB"},
		"an endless line":              {tooMuch + "xxxxxx", wire.ReadFromGuard, wire.ErrTooLarge, "64 MB"},
		"another protocol":             {"refdb-hook 3\n\n", readBegin, wire.ErrMalformed, "refdb-hook 3"},
		"a later version":              {"refdb-session 2\nsecret 1\n\n", readBegin, wire.ErrVersion, `version "2"`},
		"a first message without end":  {begun + "\n", readBegin, wire.ErrMalformed, "ready"},
		"ready before the end":         {begun + "ready\nname x\n\n", readBegin, wire.ErrMalformed, "ready"},
		"no guard":                     {"refdb-session 1\nnumber 1\nname x\nroot /\nready\n\n", readBegin, wire.ErrMalformed, "guard"},
		"a short guard":                {"refdb-session 1\nguard 0a\nnumber 1\nname x\nroot /\nready\n\n", readBegin, wire.ErrMalformed, "32"},
		"number 0":                     {strings.Replace(begun, "number 1", "number 0", 1) + "ready\n\n", readBegin, wire.ErrMalformed, "number 0"},
		"number +1":                    {strings.Replace(begun, "number 1", "number +1", 1) + "ready\n\n", readBegin, wire.ErrMalformed, "number +1"},
		"a relative root":              {strings.Replace(begun, "root /srv", "root srv", 1) + "ready\n\n", readBegin, wire.ErrMalformed, "absolute path"},
		"a key twice":                  {begun + "number 2\nready\n\n", readBegin, wire.ErrMalformed, "number 2"},
		"an unknown key":               {begun + "color red\nready\n\n", readBegin, wire.ErrMalformed, "color red"},
		"a key after the list":         {begun + "open 1 /a\n" + move + "server x\nready\n\n", readBegin, wire.ErrMalformed, "server x"},
		"an open one of nothing":       {begun + "open 1 /a\nready\n\n", readBegin, wire.ErrMalformed, "without a ref"},
		"an open one twice":            {begun + "open 1 /a\n" + move + "open 1 /a\n" + move + "ready\n\n", readBegin, wire.ErrMalformed, "twice"},
		"a move of nothing":            {begun + move + "ready\n\n", readBegin, wire.ErrMalformed, "refs/heads/x"},
		"a refusal of another kind":    {"refused 1 maybe behind\n\n", wiretest.ReadFromDaemon, wire.ErrMalformed, "maybe"},
		"a refusal without a reason":   {"refused 1 retry\n\n", wiretest.ReadFromDaemon, wire.ErrMalformed, "refused"},
		"a reason of two words":        {"refused 1 retry be hind\n\n", wiretest.ReadFromDaemon, wire.ErrMalformed, "refused"},
		"a settlement of rubbish":      {"settled 1\nrubbish\n\n", wiretest.ReadFromDaemon, wire.ErrMalformed, "rubbish"},
		"an answer that is no welcome": {"ok 1\n\n", wiretest.ReadWelcome, wire.ErrMalformed, "ok 1"},
		"a welcome of words":           {"welcome\nsite x\nroot /\ntimeout soon\n\n", wiretest.ReadWelcome, wire.ErrMalformed, "timeout soon"},
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

func TestAMessageThatCouldNotBeReadIsNotSent(t *testing.T) {
	t.Parallel()
	one := []wire.Line{{Old: zero, New: a, Ref: "refs/heads/x"}}
	for _, m := range []wire.Message{
		wire.Begin{}, wire.Report{}, wire.Granted{TX: "a b"}, wire.Announce{TX: "1", Dir: "/a"}, wire.Announce{TX: "1", Dir: "/a\nb", Lines: one},
		wire.Announce{TX: "1", Dir: "/a", By: "a\nb", Lines: one}, wire.Announce{TX: "1", Dir: "/a", Lines: []wire.Line{{Old: a, New: a, Ref: "a b"}}},
		wire.Refused{TX: "1", Kind: wire.Final, Reason: "two words"}, wire.Refused{TX: "1", Kind: wire.Final, Reason: "x", Lines: []string{""}},
		wire.Rejected{Reason: "x", Lines: []string{"a\nb"}}, wire.Settled{TX: "1", Values: []wire.RefValue{{Value: "x", Ref: "y"}}},
		wire.WaitOn{TX: "1", Text: "a\nb"}, wire.Fault{}, wire.Welcome{},
	} {
		var buf bytes.Buffer
		if err := wiretest.Write(&buf, m); !errors.Is(err, wire.ErrMalformed) || buf.Len() != 0 {
			t.Errorf("%+v: %v, %d bytes sent", m, err, buf.Len())
		}
	}
	large := wire.Refused{TX: "1", Kind: wire.Final, Reason: "x", Lines: []string{strings.Repeat("x", wire.MaxMessage)}}
	if err := wiretest.Write(io.Discard, large); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("more than fits: %v", err)
	}
}

func fuzzMessages(f *testing.F, read func(*bufio.Reader) (wire.Message, error)) {
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := read(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			for _, known := range []error{wire.ErrMalformed, wire.ErrVersion, wire.ErrTooLarge, io.EOF} {
				if errors.Is(err, known) {
					return
				}
			}
			t.Fatalf("an error of no kind: %v", err)
		}
		var buf bytes.Buffer
		if err := wiretest.Write(&buf, m); err != nil {
			t.Fatalf("%q was read as %+v, which can't be sent: %v", text, m, err)
		}
		again, err := read(bufio.NewReader(&buf))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v was sent and became %+v, %v", m, again, err)
		}
	})
}

func FuzzReadBegin(f *testing.F) {
	f.Add([]byte(begun + "instance x\nserver y\nopen 1 /a\n" + zero + " " + a + " refs/heads/x\nready\n\n"))
	f.Add([]byte("refdb-session 2\n\n"))
	fuzzMessages(f, readBegin)
}

func FuzzReadFromGuard(f *testing.F) {
	f.Add([]byte("announce 1 5000 /a\nby x\n" + zero + " " + a + " refs/heads/x\n\n"))
	f.Add([]byte("report 1\n\nping\n\n"))
	f.Add([]byte("create 1 5000 /a\n\n"))
	f.Add([]byte("deleted 1 5000 /a\nid x\n\n"))
	fuzzMessages(f, wire.ReadFromGuard)
}

func FuzzReadFromDaemon(f *testing.F) {
	f.Add([]byte("wait 1 x\n\n"))
	f.Add([]byte("refused 1 retry behind\nx\n\n"))
	f.Add([]byte("settled 1\n" + a + " refs/x\n\nerror x\n\n"))
	fuzzMessages(f, wiretest.ReadFromDaemon)
}

func FuzzReadWelcome(f *testing.F) {
	f.Add([]byte("welcome\nsite x\nroot /\nlock-wait 2000\ntimeout 6000\ndatabase ok\n\n"))
	f.Add([]byte("rejected root\nx\n\n"))
	fuzzMessages(f, wiretest.ReadWelcome)
}
