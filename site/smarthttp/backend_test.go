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

// The last client that waits may leave when git has just ended well.
func TestAnAnswerThatNobodyWaitsForIsAnError(t *testing.T) {
	t.Parallel()
	left := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	program, pid := filepath.Join(dir, "backend"), filepath.Join(dir, "pid")
	if err := testprogram.Write(program, []byte("#!/bin/sh\necho $$ > "+pid+"\nprintf 'Status: 200 OK\\r\\n\\r\\nrefs'\n")); err != nil {
		t.Fatal(err)
	}
	a, err := backend{program}.answer(ctx, request{
		http:    httptest.NewRequest("GET", refsURL, nil),
		service: advertiseRefs,
		body:    endOf{pid, func() { cancel(left) }},
	}, 1<<10)
	if a != nil || !errors.Is(err, left) {
		t.Errorf("answered %+v, %v", a, err)
	}
}

// An endOf is the body of a request. It ends after the process has ended whose number a file has, and then was called.
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
		time.Sleep(time.Millisecond) // nothing tells when a process is waited for
	}
}
