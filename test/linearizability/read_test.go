package linearizability_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

const (
	first  = `{"t":10,"owner":"eu/1","id":1,"call":{"kind":"get","project":"p","refs":["r"]}}` + "\n"
	answer = `{"t":20,"owner":"eu/1","id":1,"return":{"result":"done","values":{"r":"v"}}}` + "\n"
	second = `{"t":30,"owner":"eu/1","id":2,"call":{"kind":"get","project":"p","refs":["r"]}}` + "\n"
	others = `{"t":15,"owner":"us/1","id":1,"call":{"kind":"get","project":"p","refs":["r"]}}` + "\n"
)

func TestReadMergesFilesInTheOrderOfCalls(t *testing.T) {
	t.Parallel()
	ops := read(t, first+answer+second, others)
	if len(ops) != 3 || ops[0].Owner != "eu/1" || ops[1].Owner != "us/1" || ops[2].ID != 2 {
		t.Fatalf("%+v", ops)
	}
	if op := ops[0]; op.Call != 10 || op.Return != 20 || op.Output.Result != linearizability.Done || op.Output.Values["r"] != "v" {
		t.Errorf("the call with a return is %+v", op)
	}
}

func TestACallWithoutAReturnHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, op := range read(t, first, others) {
		if op.Return != linearizability.Never || op.Output.Result != linearizability.Unknown || !op.Output.Unresolved {
			t.Errorf("%+v", op)
		}
	}
}

func TestHalfALineAtTheEndIsWhatAKilledProcessLeaves(t *testing.T) {
	t.Parallel()
	whole := first + answer + second
	for cut := len(first + answer); cut < len(whole); cut++ {
		if ops := read(t, whole[:cut]); len(ops) != 1 || ops[0].Return != 20 {
			t.Errorf("cut after %d bytes: %+v", cut, ops)
		}
	}
	if ops := read(t, (first + answer)[:len(first)+5]); len(ops) != 1 || ops[0].Return != linearizability.Never {
		t.Errorf("cut in a return: %+v", ops)
	}
}

func TestAFileThatIsNoHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"half a line in the middle": first[:20] + "\n" + answer,
		"a return without a call":   answer,
		"a call made twice":         first + first,
		"two returns":               first + answer + answer,
	} {
		if ops, err := linearizability.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %+v", name, ops)
		}
	}
}

func TestARecordThatCannotBeWrittenFailsTheClient(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	c, err := linearizability.Open(linearizability.NewRecorder(writer(func([]byte) (int, error) { return 0, full })), newMemory("", false), refdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "p", "refs/heads/main"); err != nil {
		t.Error(err)
	}
	if err := c.Close(); !errors.Is(err, full) {
		t.Errorf("closed with %v", err)
	}
}

func TestEachLineIsOneWrite(t *testing.T) {
	t.Parallel()
	var lines []string
	c, err := linearizability.Open(linearizability.NewRecorder(writer(func(b []byte) (int, error) {
		lines = append(lines, string(b))
		return len(b), nil
	})), newMemory("", false), refdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(t.Context(), "p", "refs/heads/main"); err != nil {
		t.Error(err)
	}
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	for _, l := range lines {
		if strings.Index(l, "\n") != len(l)-1 {
			t.Errorf("%q is not one line", l)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func read(t *testing.T, texts ...string) []linearizability.Op {
	t.Helper()
	var files []io.Reader
	for _, text := range texts {
		files = append(files, bytes.NewBufferString(text))
	}
	ops, err := linearizability.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}
