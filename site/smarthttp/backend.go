package smarthttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// A backend runs git http-backend, as a web server would.
type backend struct{ program string }

func findBackend(ctx context.Context) (backend, error) {
	out, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return backend{}, fmt.Errorf("looking for git http-backend: %w", gitrepo.Failure(ctx, err))
	}
	b := backend{filepath.Join(strings.TrimSuffix(string(out), "\n"), "git-http-backend")}
	if _, err := exec.LookPath(b.program); err != nil {
		return backend{}, fmt.Errorf("git http-backend is not there: install it: %w", err)
	}
	return b, nil
}

// A request is a client's request, as it is passed on to git.
type request struct {
	dir      string // the repository's directory
	http     *http.Request
	service  service
	user     string // "" for an anonymous client
	body     io.Reader
	encoding string // the Content-Encoding of body
	incoming *body  // the client's body, from which body reads; nil if body is in memory
}

// waitDelay is how long programs that git has started may keep git's output open after git has
// ended.
const waitDelay = 5 * time.Second

// start starts git http-backend, and reads the header of its answer. Git gets only the environment
// variables that are set here: no header of a client becomes a variable.
//
// CONTENT_LENGTH is not set. With it, git http-backend would copy the body of a push to git
// receive-pack, and loop forever if the body ended early. Without it, git receive-pack reads the
// pipe to this process, and fails at its end.
func (b backend) start(ctx context.Context, q request) (*process, error) {
	h := q.http.Header
	cmd := exec.CommandContext(ctx, b.program)
	cmd.Env = append(gitrepo.Environ(),
		"LC_ALL=C", "GATEWAY_INTERFACE=CGI/1.1", "SERVER_PROTOCOL="+q.http.Proto,
		"GIT_HTTP_EXPORT_ALL=1", "GIT_PROJECT_ROOT="+q.dir, "PATH_INFO=/"+q.service.path(), "REQUEST_METHOD="+q.http.Method,
		"QUERY_STRING="+q.http.URL.RawQuery, "CONTENT_TYPE="+h.Get("Content-Type"), "GIT_PROTOCOL="+h.Get("Git-Protocol"),
		"REMOTE_USER="+q.user,
	)
	if q.encoding != "" {
		cmd.Env = append(cmd.Env, "HTTP_CONTENT_ENCODING="+q.encoding)
	}
	cmd.Stdin = q.body
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return kill(cmd) }
	cmd.WaitDelay = waitDelay
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting git http-backend: %w", err)
	}
	r := &process{cmd: cmd, out: bufio.NewReaderSize(out, 64<<10), reads: q.service.reads(), incoming: q.incoming}
	if err := r.readHeader(); err != nil {
		r.abandon()
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// kill kills git and all programs that it started, which would otherwise keep git's output open.
// None of them may be a git that moves refs.
func kill(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		return err // git has ended, and another process may have its ID
	}
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

// A process is a git http-backend that has sent the header of its answer.
type process struct {
	cmd      *exec.Cmd
	out      *bufio.Reader
	reads    bool // git moves no refs
	incoming *body
	status   int
	header   http.Header
}

func (r *process) readHeader() error {
	header, err := textproto.NewReader(r.out).ReadMIMEHeader()
	if err != nil {
		return fmt.Errorf("git http-backend did not answer: %w", err)
	}
	r.status, r.header = http.StatusOK, http.Header(header)
	if status := header.Get("Status"); status != "" {
		number, _, _ := strings.Cut(status, " ")
		if r.status, err = strconv.Atoi(number); err != nil || r.status < 200 || r.status > 599 {
			return fmt.Errorf("git http-backend answered with status %.100q", status)
		}
	}
	header.Del("Status")
	return nil
}

// abandon is called if nobody reads the rest of git's output. A git that moves refs is not killed,
// but runs to its end.
func (r *process) abandon() {
	if r.reads {
		kill(r.cmd)
	} else {
		io.Copy(io.Discard, r.out)
	}
}

// end waits until git has ended. It discards the rest of git's output, and of the client's body.
func (r *process) end() error {
	if r.incoming != nil {
		r.incoming.abandon()
	}
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("git http-backend: %w", err)
	}
	return nil
}

// An answer is an answer of git. It is never changed.
type answer struct {
	status int
	header http.Header
	body   []byte
	// tooLarge means that the body exceeded the limit of its size, and was discarded.
	tooLarge bool
	// truncated means that git failed after it had begun to answer, as it does if it can't parse
	// the request.
	truncated bool
}

// answer returns git's whole answer, without a body of more than limit bytes. If answer returns an
// error, git did not begin to answer, or ctx has ended.
func (b backend) answer(ctx context.Context, q request, limit int64) (*answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := b.start(ctx, q)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	n, err := body.ReadFrom(io.LimitReader(r.out, limit+1))
	if err == nil && n > limit {
		cancel()
		r.end() // the error only says that git was killed
		return &answer{status: r.status, header: r.header, tooLarge: true}, nil
	}
	err = errors.Join(err, r.end())
	if ctx.Err() != nil { // even if git has ended successfully
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return &answer{status: r.status, header: r.header, body: bytes.Clone(body.Bytes()), truncated: err != nil}, nil
}

// write writes the answer to a client. After a truncated answer it ends the connection, because the
// client must not mistake the answer for a complete one.
func (a *answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if a.truncated {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)+1))
		w.WriteHeader(a.status)
		w.Write(a.body)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// pass passes the answer on while git makes it, and reports whether the answer has begun.
func (b backend) pass(ctx context.Context, q request, w http.ResponseWriter) (began bool, err error) {
	r, err := b.start(ctx, q)
	if err != nil {
		return false, err
	}
	for name, values := range r.header {
		w.Header()[name] = values
	}
	to := http.NewResponseController(w)
	// Git may begin to answer before it has read the whole request. From here on, net/http would
	// take the rest of the body for the next request; so in this case pacedWriter closes the
	// connection after the response. Peek waits for git's answer, because by then git has read most
	// requests to their end.
	to.EnableFullDuplex()
	r.out.Peek(1)
	w.WriteHeader(r.status)
	to.Flush()
	if _, err = io.Copy(flushWriter{w, to}, struct{ io.Reader }{r.out}); err != nil {
		r.abandon()
	}
	return true, errors.Join(err, r.end())
}

// A flushWriter flushes each write, so that the client can show the progress of a push.
type flushWriter struct {
	w  io.Writer
	to *http.ResponseController
}

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.to.Flush()
	}
	return n, err
}
