// Package testbrowser runs a headless Chromium for tests, and speaks its DevTools protocol through a pipe.
package testbrowser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	patience      = 2 * time.Minute // only a test that fails reaches it
	width, height = 1200, 680       // of the tab, in pixels
)

// programs are the names of the browser.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// A Tab is an empty tab of a browser of its own. Its methods fail the test.
type Tab struct {
	t       testing.TB
	in      *os.File
	session string

	mu      sync.Mutex
	last    int
	answers map[int]chan answer
	faults  []string
	ended   error
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	answer
}

type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Open starts a browser, which ends with the test. Without Chromium the test is skipped.
func Open(t testing.TB) *Tab {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: a headless Chromium; make test-all runs it")
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return start(t, path)
		}
	}
	t.Skip("left out: Chromium is not installed; as root on Debian, make deps-all installs it")
	return nil
}

func start(t testing.TB, path string) *Tab {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "--remote-debugging-pipe", fmt.Sprintf("--window-size=%d,%d", width, height), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as the protocol has them
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &Tab{t: t, in: ourOut, answers: map[int]chan answer{}}
	var reading sync.WaitGroup
	reading.Go(func() { b.read(ourIn) })
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // all of its processes
		_ = cmd.Wait()
		ourOut.Close()
		reading.Wait()
		ourIn.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	return b
}

// read takes what the browser sends, until it ends.
func (b *Tab) read(from *os.File) {
	r := bufio.NewReader(from)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			b.end(err)
			return
		}
		var m message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			b.end(err)
			return
		}
		b.mu.Lock()
		switch m.Method {
		case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
			b.faults = append(b.faults, m.Method+" "+string(m.Params))
		}
		if to := b.answers[m.ID]; to != nil {
			delete(b.answers, m.ID)
			to <- m.answer
		}
		b.mu.Unlock()
	}
}

func (b *Tab) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = fmt.Errorf("the browser has ended: %w", err)
	for id, to := range b.answers {
		delete(b.answers, id)
		close(to)
	}
}

// call sends a command, and puts its result into result unless that is nil.
func (b *Tab) call(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *Tab) try(method string, params, result any) error {
	encoded := json.RawMessage("{}")
	if params != nil {
		var err error
		if encoded, err = json.Marshal(params); err != nil {
			return err
		}
	}
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return b.ended
	}
	b.last++
	to := make(chan answer, 1)
	b.answers[b.last] = to
	text, err := json.Marshal(message{ID: b.last, SessionID: b.session, Method: method, Params: encoded})
	b.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return err
	}
	select {
	case a, ok := <-to:
		switch {
		case !ok:
			return errors.New("the browser has ended")
		case a.Error != nil:
			return errors.New(a.Error.Message)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no answer within %s", patience)
	}
}

// Go opens a page.
func (b *Tab) Go(url string) {
	b.t.Helper()
	var result struct{ ErrorText string }
	b.call("Page.navigate", map[string]any{"url": url}, &result)
	if result.ErrorText != "" {
		b.t.Fatalf("%s: %s", url, result.ErrorText)
	}
}

// Run runs a script on the page, in which it is not subject to the page's policy, and returns whether its
// value is true.
func (b *Tab) Run(script string) bool {
	b.t.Helper()
	ok, err := b.run(script)
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return ok
}

func (b *Tab) run(script string) (bool, error) {
	var result struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	err := b.try("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &result)
	if err == nil && result.ExceptionDetails != nil {
		err = errors.New(string(result.ExceptionDetails))
	}
	ok, _ := result.Result.Value.(bool)
	return ok, err
}

// Await waits until the value of a script is true. Meanwhile the page may be left for another.
func (b *Tab) Await(script string) {
	b.t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		var ok bool
		if ok, err = b.run(script); err == nil && ok {
			return
		}
	}
	var page struct{ Result struct{ Value string } }
	b.call("Runtime.evaluate", map[string]any{"expression": "location.href + '\\n' + document.documentElement.outerHTML", "returnByValue": true}, &page)
	b.t.Fatalf("%s: not within %s, %v; the page is %s; %q", script, patience, err, page.Result.Value, b.Faults())
}

// Faults returns what the console has: errors, violations of the page's policy, messages and dialogs of scripts.
func (b *Tab) Faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.faults...)
}

// Picture returns the page as a PNG.
func (b *Tab) Picture() []byte {
	b.t.Helper()
	var result struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &result)
	png, err := base64.StdEncoding.DecodeString(result.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}
