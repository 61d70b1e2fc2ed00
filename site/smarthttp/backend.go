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

// A request is what git is asked.
type request struct {
	dir      string // of the repository
	http     *http.Request
	service  service
	user     string // "" for nobody
	body     io.Reader
	encoding string // of the body, as HTTP says it
	sent     *body  // what the client sends: body reads from it. Or nil: all of it is there
}

// waitDelay is how long what git has started may keep git's output open after git has ended.
const waitDelay = 5 * time.Second

// start starts git. Only what is named here reaches it: no header of a client becomes a variable of its environment.
//
// CONTENT_LENGTH is left out. With it git http-backend copies the body of a push to git receive-pack, and loops for ever if the body ends early;
// without it git receive-pack reads our pipe, and fails at its end.
func (b backend) start(ctx context.Context, q request) (*running, error) {
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
	r := &running{cmd: cmd, out: bufio.NewReaderSize(out, 64<<10), reads: q.service.reads(), sent: q.sent}
	if err := r.readHeader(); err != nil {
		r.leave()
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// kill ends git, with all that it started: nothing else would close its output. No git that moves refs may be among them.
func kill(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		return err // it has ended, and its number may be another's
	}
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

// A running backend has said what it answers, and goes on with the body.
type running struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	reads  bool // it moves no refs
	sent   *body
	status int
	header http.Header
}

func (r *running) readHeader() error {
	header, err := textproto.NewReader(r.out).ReadMIMEHeader()
	if err != nil {
		return fmt.Errorf("git http-backend did not answer: %w", err)
	}
	r.status, r.header = http.StatusOK, http.Header(header)
	if said := header.Get("Status"); said != "" {
		number, _, _ := strings.Cut(said, " ")
		if r.status, err = strconv.Atoi(number); err != nil || r.status < 200 || r.status > 599 {
			return fmt.Errorf("git http-backend answered with status %.100q", said)
		}
	}
	header.Del("Status")
	return nil
}

// leave is called if nobody reads what else git says. A git that moves refs ends by itself.
func (r *running) leave() {
	if r.reads {
		kill(r.cmd)
	} else {
		io.Copy(io.Discard, r.out)
	}
}

// end waits until git has ended. What it has not said is lost, and so is what it has not read.
func (r *running) end() error {
	if r.sent != nil {
		r.sent.abandon()
	}
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("git http-backend: %w", err)
	}
	return nil
}

// An answer is what git answered. Nobody changes it.
type answer struct {
	status int
	header http.Header
	body   []byte
	// endless: the body is larger than was to be kept, and left out.
	endless bool
	// cut: git failed after it had begun to answer, as it does when it can't make sense of the request.
	cut bool
}

// answer keeps the whole answer, up to limit bytes of it. An error says that git did not begin to answer, or that ctx has ended.
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
		r.end() // it was killed
		return &answer{status: r.status, header: r.header, endless: true}, nil
	}
	err = errors.Join(err, r.end())
	if ctx.Err() != nil { // git may have ended well before that
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return &answer{status: r.status, header: r.header, body: bytes.Clone(body.Bytes()), cut: err != nil}, nil
}

// write ends the connection behind an answer that was cut: the client must not take it for a whole one.
func (a *answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if a.cut {
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

// pass passes the answer on while git makes it, and reports whether that has begun.
func (b backend) pass(ctx context.Context, q request, w http.ResponseWriter) (began bool, err error) {
	r, err := b.start(ctx, q)
	if err != nil {
		return false, err
	}
	for name, values := range r.header {
		w.Header()[name] = values
	}
	to := http.NewResponseController(w)
	// Git may begin to answer before it has read all. From here on net/http would take what is left of the body for the next request,
	// so the connection ends then. When git begins to speak, it has read most requests to their end.
	to.EnableFullDuplex()
	r.out.Peek(1)
	w.WriteHeader(r.status)
	to.Flush()
	if _, err = io.Copy(flushing{w, to}, struct{ io.Reader }{r.out}); err != nil {
		r.leave()
	}
	return true, errors.Join(err, r.end())
}

// flushing writes through to the client, who is shown how far a push is.
type flushing struct {
	w  io.Writer
	to *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.to.Flush()
	}
	return n, err
}
