package smarthttp

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// The last waiting client may give up when git has just ended successfully.
func TestAnAnswerIsAnErrorOnceNoClientWaits(t *testing.T) {
	t.Parallel()
	gaveUp := errors.New("the last client has given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	program, pid := filepath.Join(dir, "backend"), filepath.Join(dir, "pid")
	if err := testprogram.Write(program, []byte("#!/bin/sh\necho $$ > "+pid+"\nprintf 'Status: 200 OK\\r\\n\\r\\nrefs'\n")); err != nil {
		t.Fatal(err)
	}
	a, err := backend{program}.answer(ctx, request{
		http:    httptest.NewRequest("GET", refsURL, nil),
		service: advertiseRefs,
		body:    endOf{pid, func() { cancel(gaveUp) }},
	}, 1<<10)
	if a != nil || !errors.Is(err, gaveUp) {
		t.Errorf("answered %+v, %v", a, err)
	}
}

// An endOf is the body of a request. It waits until the process whose ID is in the file pid has
// ended, calls then, and ends.
type endOf struct {
	pid  string
	then func()
}

func (e endOf) Read([]byte) (int, error) {
	for {
		text, _ := os.ReadFile(e.pid)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			e.then()
			return 0, io.EOF
		}
		time.Sleep(time.Millisecond) // no event shows that a process has been reaped
	}
}
