//go:build linux

package sites

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A rawRequest is one that a test's client sends byte by byte.
type rawRequest struct {
	service  string
	body     string
	encoding string // of the body, as HTTP says it
	chunked  bool
}

// bytes returns the request, and where its body begins.
func (q rawRequest) bytes() (text []byte, body int) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /%s.git/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n%s: alice\r\nContent-Type: application/x-%s-request\r\n", project, q.service, userHeader, q.service)
	if q.encoding != "" {
		fmt.Fprintf(&b, "Content-Encoding: %s\r\n", q.encoding)
	}
	if !q.chunked {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(q.body))
		body = b.Len()
		b.WriteString(q.body)
		return b.Bytes(), body
	}
	b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	body = b.Len()
	for chunk := range slices.Chunk([]byte(q.body), 100) {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(chunk), chunk)
	}
	b.WriteString("0\r\n\r\n")
	return b.Bytes(), body
}

// begin sends the header of a request, and waits until the server reads the body, or begins to answer before it does.
func (f *front) begin(header []byte) (net.Conn, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		return nil, err
	}
	if _, err = conn.Write(header); err == nil {
		said := make([]byte, len("HTTP/1.1 100"))
		if _, err = io.ReadFull(conn, said); err == nil && string(said) != "HTTP/1.1 100" && string(said) != "HTTP/1.1 200" {
			err = fmt.Errorf("it says %s", said)
		}
	}
	if err != nil {
		conn.Close()
	}
	return conn, err
}

// send sends a request up to a byte of its body, reads so much of the answer, and breaks off: with a reset, or in good order.
func (f *front) send(q rawRequest, upTo int, read int64, reset bool) error {
	text, body := q.bytes()
	conn, err := f.begin(text[:body])
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(text[body : body+upTo]); err != nil {
		return err
	}
	if n, err := io.CopyN(io.Discard, conn, read); err != nil && err != io.EOF { // how it is cut into chunks varies
		return fmt.Errorf("after %d bytes of the answer: %w", n, err)
	}
	if reset {
		return conn.(*net.TCPConn).SetLinger(0)
	}
	return nil
}

// length returns how many bytes the body has on the wire.
func (q rawRequest) length() int {
	text, body := q.bytes()
	return len(text) - body
}

// pushOf returns the body of a push of a new ref.
func (c *cluster) pushOf(ref, value string) string {
	c.Helper()
	command := fmt.Sprintf("%s %s %s\x00report-status side-band-64k agent=test", c.h.zero, value, ref)
	pack := c.g.command(c.h.dir, "pack-objects", "--stdout", "--revs", "--quiet")
	pack.Stdin = strings.NewReader(value + "\n^" + c.h.a + "\n") // which is there
	text, err := pack.Output()
	return fmt.Sprintf("%04x%s0000%s", len(command)+4, command, must(c.TB, text, err))
}

func packedBody(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// noneLeft waits until no process is left of a front's requests, and no objects of a push that did not end.
func (f *front) noneLeft() {
	f.c.Helper()
	eventually(f.c, "the end of all that "+f.name+" has started", func() error {
		if left := processesIn(f.root); len(left) > 0 {
			return fmt.Errorf("these are left: %v", left)
		}
		if left := childrenOf(f.c.TB, f.process.Process.Pid); len(left) > 0 {
			return fmt.Errorf("these children are left: %v", left)
		}
		return nil
	})
	left, err := filepath.Glob(filepath.Join(f.repo(project), "objects", "*incoming*"))
	if len(must(f.c.TB, left, err)) > 0 {
		f.c.Errorf("%v is left", left)
	}
}

// waitBroken waits until that many requests have been broken off, as far as the front knows.
func (f *front) waitBroken(want int) {
	f.c.Helper()
	eventually(f.c, fmt.Sprintf("the end of %d requests at %s", want, f.name), func() error {
		if n := f.count("broken"); n != want {
			return fmt.Errorf("%d have ended", n)
		}
		return nil
	})
}

// A client may break off at every byte of what it sends and of what it gets. What it sent in part has no effect; what it sent as a whole is
// done at both sites, also if nobody hears of it; no process is left. A run tries every fourth byte, all of them with REFDB_TEST_LONG=1.
func TestClientsThatBreakOffAtEveryByte(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	fronts := []*front{c.eu.http(), c.us.http()}
	// stride returns which bytes are tried of so many: each one, or some of them, with the first and the last ones. With -short it is about
	// the given number.
	phase := rand.IntN(4)
	stride := func(bytes, short int) (at []int) {
		for i := range bytes {
			every := 4
			switch {
			case testing.Short():
				every = max(1, bytes/short)
			case long():
				every = 1
			}
			if i < 2 || i >= bytes-2 || (i+phase)%every == 0 {
				at = append(at, i)
			}
		}
		return at
	}

	const push, fetch = "git-receive-pack", "git-upload-pack"
	commits := c.pushOf("refs/heads/broken-off", c.h.b)
	wants := "0032want " + c.h.a + "\n00000009done\n"
	requests := map[string]struct {
		rawRequest
		tail int // bytes at the end without which git has all: such a push may be made
	}{
		"a push":          {rawRequest{service: push, body: commits}, 0},
		"a chunked push":  {rawRequest{service: push, body: commits, chunked: true}, len("\r\n0\r\n\r\n")},
		"a packed push":   {rawRequest{service: push, body: packedBody(commits), encoding: "gzip"}, 14}, // an empty block and the sum
		"a fetch":         {rawRequest{service: fetch, body: wants}, 0},
		"a chunked fetch": {rawRequest{service: fetch, body: wants, chunked: true}, 0},
	}
	attempts := [2]int{}
	n := 0
	var clients sync.WaitGroup
	room := make(chan struct{}, 8)
	for name, request := range requests {
		for _, at := range stride(request.length()-request.tail, 4) {
			n++
			side, reset := n%2, n%3 == 0
			attempts[side]++
			room <- struct{}{}
			clients.Go(func() {
				defer func() { <-room }()
				if err := fronts[side].send(request.rawRequest, at, 0, reset); err != nil {
					t.Errorf("%s, %d bytes: %v", name, at, err)
				}
			})
		}
	}
	clients.Wait()
	for side, f := range fronts {
		f.waitBroken(attempts[side])
		f.noneLeft()
	}
	if refs := c.globalRefs(); len(refs) != 1 {
		t.Errorf("a push that was broken off has moved a ref: %v", refs)
	}
	t.Logf("%d requests were broken off", n)

	// A header that is not there as a whole is no request.
	text, body := requests["a push"].bytes()
	for _, at := range stride(body, 8) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(fronts[0].url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(text[:at]); err != nil {
			t.Errorf("%d bytes of the header: %v", at, err)
		}
		conn.Close()
	}

	// The whole request is there: the push is made, whatever its client reads of the answer.
	want := map[string]string{"refs/heads/main": c.h.a}
	wholePush := func(ref string) rawRequest {
		return rawRequest{service: push, body: c.pushOf(ref, c.h.b), chunked: true}
	}
	first := "refs/heads/whole-000"
	answer := readAnswer(t, fronts[0], wholePush(first))
	want[first] = c.h.b
	for i, at := range stride(answer, 3) {
		ref := fmt.Sprintf("refs/heads/whole-%03d", i+1)
		if err := fronts[i%2].send(wholePush(ref), wholePush(ref).length(), int64(at), i%3 == 0); err != nil {
			t.Errorf("%d bytes of the answer: %v", at, err)
		}
		want[ref] = c.h.b
	}
	eventually(t, "all pushes that were sent as a whole", func() error {
		if got := c.globalRefs(); len(got) != len(want) {
			return fmt.Errorf("%d of %d", len(got), len(want))
		}
		return nil
	})
	for _, f := range fronts {
		f.noneLeft()
	}
	c.settled()
	sameRefs(t, "the database", c.globalRefs(), want)
	for _, f := range fronts {
		f.follows(project)
		got, err := c.h.lists(t, f.repoURL())
		sameRefs(t, f.name, must(t, got, err), want)
	}
}

// readAnswer sends a request, and returns how many bytes its answer has.
func readAnswer(t testing.TB, f *front, q rawRequest) int {
	t.Helper()
	text, body := q.bytes()
	conn, err := f.begin(text[:body])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(text[body:]); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if !bytes.Contains(must(t, answer, err), []byte("unpack ok")) {
		t.Fatalf("%s", answer)
	}
	return len(answer) - len(" Continue\r\n\r\n")
}

// A git http-backend ends with its server. A git receive-pack that has begun to move refs goes on to its end.
func TestNoBackendOutlivesItsServer(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	gate := gateIn(t, c.eu.repo(project), "reference-transaction")
	gate.shut("prepared")
	eu := c.eu.http()
	for ref, left := range map[string]int{"refs/heads/whole": 0, "refs/heads/part": 10} {
		text, body := rawRequest{service: "git-receive-pack", body: c.pushOf(ref, c.h.b)}.bytes()
		conn, err := eu.begin(text[:body])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = conn.Write(text[body : len(text)-left])
		must(t, 0, err)
	}
	hook := gate.waits("prepared")
	var backends []int
	eventually(t, "both pushes", func() error {
		if backends = childrenOf(t, eu.process.Process.Pid); len(backends) != 2 || len(processesIn(eu.root)) < 3 { // one unpacks
			return fmt.Errorf("%v, %v", backends, processesIn(eu.root))
		}
		return nil
	})
	must(t, 0, syscall.Kill(eu.process.Process.Pid, syscall.SIGKILL))
	for _, backend := range backends {
		gone(t, backend)
	}
	if _, err := stat(hook); err != nil {
		t.Error("the push that is moving refs has ended")
	}
	gate.open("prepared")
	eventually(t, "the end of all pushes", func() error {
		if left := processesIn(eu.root); len(left) > 0 {
			return fmt.Errorf("these are left: %v", left)
		}
		return nil
	})
	c.settled()
	sameRefs(t, "the database", c.globalRefs(), map[string]string{"refs/heads/main": c.h.a, "refs/heads/whole": c.h.b})
	sameRefs(t, "eu", c.eu.refs(project), c.globalRefs())
}

// Readers that never send what they want hold up nobody, however many there are.
func TestReadersThatStallHoldUpNobody(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.settled()
	eu := c.eu.http()
	text, body := rawRequest{service: "git-upload-pack", body: strings.Repeat("0", 100_000)}.bytes()
	for range 300 {
		conn, err := eu.begin(text[:body])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = conn.Write(text[body : body+1])
		must(t, 0, err)
	}
	request := rawRequest{service: "git-upload-pack", body: "0032want " + c.h.a + "\n00000009done\n"}
	eventually(t, "an answer to a reader that sends all", func() error {
		response, err := http.Post(eu.repoURL()+"/git-upload-pack", "application/x-git-upload-pack-request", strings.NewReader(request.body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if response.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(must(t, answer, err)), "this site is behind") {
			return errBehind // on a busy machine
		}
		if response.StatusCode != 200 || !bytes.Contains(must(t, answer, err), []byte("PACK")) {
			t.Errorf("%s: %q", response.Status, answer)
		}
		return nil
	})
	if n := eu.count("passed"); n != 1 {
		t.Errorf("%d requests were passed on to git", n)
	}
}
