package smarthttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestAFailureOfGitIsNotCached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	program := r.backend.program
	r.backend.program = "/bin/false"
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), r.dir) {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
	r.backend.program = program
	r.git(r.dir, "config", "http.uploadpack", "false")
	for range 2 {
		if w := r.get(t.Context(), refsURL); w.Code != http.StatusForbidden {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
	r.wantCount(r.counts.hits, 0)
}

// fake replaces git http-backend by a script.
func (r *rig) fake(script string) {
	r.Helper()
	r.backend.program = filepath.Join(r.TempDir(), "backend")
	r.must(testprogram.Write(r.backend.program, []byte("#!/bin/sh\n"+script)))
}

// If git fails after it has begun to answer, the client gets that part of the answer, and the
// connection ends: the client must not mistake the answer for a complete one.
func TestATruncatedAnswerIsNotTakenForACompleteOne(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"a list": refsURL, "a push": "/" + project + ".git/info/refs?service=git-receive-pack"} {
		r := newRig(t)
		r.fake("printf 'Content-Type: x\\r\\n\\r\\nsaid'\nexit 1\n")
		server := httptest.NewServer(r)
		for range 2 {
			response, err := http.Get(server.URL + url)
			r.must(err)
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != 200 || string(body) != "said" || err == nil {
				t.Errorf("%s: %d, %q, %v", name, response.StatusCode, body, err)
			}
		}
		r.wantCount(r.counts.hits, 0)
		server.Close()
	}
}

func TestAGitWithAMalformedAnswerIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fake("printf 'no header\\n\\n'\nsleep 600\n")
	if w := r.get(t.Context(), refsURL); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// Clients may claim any protocol, so an unknown protocol is not part of a cache key.
func TestOnlyAnswersOfKnownProtocolsAreCached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, protocol := range []string{"version=20", "version=2:x", "x"} {
		if w := r.get(t.Context(), refsURL, "Git-Protocol", protocol); w.Code != 200 || !strings.Contains(w.Body.String(), "service=git-upload-pack") && !strings.Contains(w.Body.String(), "ls-refs") {
			t.Errorf("%s: %d: %s", protocol, w.Code, w.Body)
		}
	}
	r.wantCount(r.counts.made, 0)
	r.wantCount(r.counts.passed, 3)
}

// A semaphore without capacity admits no request.
func TestReadersAndPushesHaveSeparateLimits(t *testing.T) {
	t.Parallel()
	const pushURL = "/" + project + ".git/info/refs?service=git-receive-pack"
	for name, row := range map[string]struct {
		shut     func(*rig)
		in, out  string // the URL that is served, and the one that is not
		inStatus int
	}{
		"readers": {func(r *rig) { r.readers = make(semaphore) }, pushURL, refsURL, http.StatusForbidden}, // by git: the client is anonymous
		"makers":  {func(r *rig) { r.makers = make(semaphore) }, pushURL, refsURL, http.StatusForbidden},
		"pushes":  {func(r *rig) { r.pushes = make(semaphore) }, refsURL, pushURL, http.StatusOK},
	} {
		r := newRig(t)
		row.shut(r)
		// No event shows that the request waits: on a slow machine its client may disconnect before.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if w := r.get(ctx, row.out); w.Body.Len() > 0 {
			t.Errorf("%s: %d: %s", name, w.Code, w.Body)
		}
		cancel()
		if w := r.get(t.Context(), row.in); w.Code != row.inStatus {
			t.Errorf("%s: the others: %d: %s", name, w.Code, w.Body)
		}
	}
}

// A request that waits for too long is refused, and its client is asked to retry.
func TestARequestThatWaitsForTooLongIsRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		shut func(*rig)
		url  string
	}{
		"readers": {func(r *rig) { r.readers = make(semaphore) }, refsURL},
		"pushes":  {func(r *rig) { r.pushes = make(semaphore) }, "/" + project + ".git/info/refs?service=git-receive-pack"},
		"memory":  {func(r *rig) { r.memory.limit = 1 }, refsURL},
	} {
		r := newRig(t)
		r.limits.queue = time.Millisecond
		row.shut(r)
		if w := r.get(t.Context(), row.url); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "as many clients as it can") || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d: %s", name, w.Code, w.Body)
		}
		r.wantCount(r.counts.busy, 1)
	}
}

// fakeGit starts another program, as git does.
const fakeGit = "#!/bin/sh\nsleep 600 &\necho $! >%s\nprintf 'Content-Type: x\\r\\n\\r\\nx'\nwait\n"

func TestADisconnectingClientEndsAReadButNoPush(t *testing.T) {
	t.Parallel()
	for service, ends := range map[string]bool{"git-upload-pack": true, "git-receive-pack": false} {
		r := newRig(t)
		dir := t.TempDir()
		r.backend.program = filepath.Join(dir, "backend")
		r.must(testprogram.Write(r.backend.program, fmt.Appendf(nil, fakeGit, filepath.Join(dir, "pid"))))
		served := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			defer close(served)
			r.ServeHTTP(w, q)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/"+project+".git/"+service, strings.NewReader(pkt("want "+r.a, "")))
		r.must(err)
		response, err := http.DefaultClient.Do(q)
		r.must(err)
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		r.must(err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		r.must(err)
		cancel()
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if !ends {
			select {
			case <-served:
				t.Errorf("%s ended with its client", service)
			case <-time.After(200 * time.Millisecond):
				// There is no event to wait for: on a slow machine the push might end later.
			}
			r.must(syscall.Kill(pid, syscall.SIGKILL))
		}
		select {
		case <-served:
		case <-time.After(sitetest.Patience):
			t.Errorf("%s goes on", service)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		server.Close()
	}
}

func TestNoHeaderOfAClientReachesGit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.UserHeader = "X-User"
	environment := filepath.Join(t.TempDir(), "environment")
	r.backend.program = filepath.Join(t.TempDir(), "backend")
	r.must(testprogram.Write(r.backend.program, []byte("#!/bin/sh\nenv >"+environment+"\nprintf 'Content-Type: x\\r\\n\\r\\n'\n")))
	r.get(t.Context(), "/"+project+".git/info/refs?service=git-receive-pack", "X-User", "alice", "Proxy", "evil", "X-Evil", "evil", "Git-Protocol", "version=1", "Remote-User", "evil")
	text, err := os.ReadFile(environment)
	r.must(err)
	for _, want := range []string{"REMOTE_USER=alice", "GIT_PROTOCOL=version=1", "GIT_PROJECT_ROOT=" + r.dir, "PATH_INFO=/info/refs"} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("git does not get %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "evil") {
		t.Errorf("git gets\n%s", text)
	}
}

func TestAFrozenProjectIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, _, err := r.db.Projects().Get(t.Context(), project)
	r.must(err)
	p.Freeze = refdb.Freeze{Reason: "a move"}
	_, err = r.db.Projects().Put(t.Context(), p)
	r.must(err)
	r.want("a frozen project", r.a, false)
	r.want("a frozen project, again", r.a, true)
}
