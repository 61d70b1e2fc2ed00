package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/internal/testissuer"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// expire sets the end of a token back.
func (r *rig) expire(t *testing.T, token access.Token) {
	t.Helper()
	token.Expires = time.Now().Add(-time.Second)
	record, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, "refdb/sites", "refs/access/tokens/"+token.ID, refdb.Value(record))
}

func TestNoMethodAcceptsACredentialThatIsNotValid(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	r.trust(i)
	for _, subject := range []string{"ci", "expired", "revoked", pipeline} {
		r.allow(t, subject, access.Administer, access.All, access.All)
	}
	s := r.serve(t, server.DefaultLimits, nil)
	records, err := access.ReadRecords(t.Context(), r.db)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range records.Tokens {
		switch token.Subject {
		case "expired":
			r.expire(t, token)
		case "revoked":
			if err := access.RevokeToken(t.Context(), r.db, token.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	valid := jwt(t, i, time.Hour)
	for what, want := range map[string]int{r.tokens["expired"]: http.StatusUnauthorized, r.tokens["revoked"]: http.StatusUnauthorized, valid: http.StatusOK} {
		eventually(t, "the server knows", func() bool { status, _ := s.post(t, what, "Get", getMain); return status == want })
	}
	parts := strings.Split(valid, ".")
	for what, credential := range map[string]string{
		"none":            "",
		"expired":         r.tokens["expired"],
		"revoked":         r.tokens["revoked"],
		"unknown":         "refdb_" + strings.Repeat("A", 43),
		"cut":             r.tokens["ci"][:20],
		"a token's ID":    records.Tokens[0].ID,
		"a subject":       "ci",
		"an expired JWT":  jwt(t, i, -time.Minute),
		"an unsigned JWT": "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"a JWT's payload": "." + parts[1] + ".",
		"a large token":   "refdb_" + strings.Repeat("A", 12<<10),
		"a large JWT":     valid + strings.Repeat("A", 12<<10),
		"hostile bytes":   "\u202e%00'\"; DROP TABLE refs; --",
	} {
		for _, method := range methods() {
			if status, text := s.post(t, credential, method, `{}`); status != http.StatusUnauthorized || len(text) > 500 {
				t.Errorf("%s with %s: %d %.600s", method, what, status, text)
			}
		}
	}
	if got := locks(t, r); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// A field that the server doesn't know may be a condition.
func TestUnknownFieldsOfProtobufAreRefused(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Write, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	marshal := func(m proto.Message) []byte {
		t.Helper()
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	newer := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x"))
	u := moving(mainRef, "", one)
	one1 := marshal(u.Updates[0])
	inner := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), append(one1, newer...))
	inner = append(inner, marshal(&refdbv1.UpdateRequest{Project: "p"})...)
	for what, body := range map[string][]byte{
		"in the request":            append(marshal(u), newer...),
		"within an update":          inner,
		"known with another type":   append(marshal(u), protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 1)...),
		"within a lock":             append(marshal(u), protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), newer)...),
		"at the end, with an ID":    append(append(marshal(u), newer...), marshal(&refdbv1.UpdateRequest{RequestId: "0123456789abcdef"})...),
		"a group":                   append(marshal(u), protowire.AppendGroup(protowire.AppendTag(nil, 77, protowire.StartGroupType), 77, nil)...),
		"a field with number 15,00": append(marshal(u), protowire.AppendVarint(protowire.AppendTag(nil, 1500, protowire.VarintType), 0)...),
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Update", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/proto")
		q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
		if status, text := do(t, q); status != http.StatusBadRequest || !strings.Contains(text, "invalid_argument") || !strings.Contains(text, "does not know") {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	if value, err := r.db.Get(t.Context(), "p", mainRef); err != nil || !value.IsAbsent() {
		t.Errorf("the ref has %q, %v", value, err)
	}
	if got := update(t, s.grpc("ci"), u); got.GetUpdated() == nil {
		t.Errorf("without: %v", got)
	}
}

func TestASubjectWhoseCallsAllWaitStillExtendsItsLocks(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	r.allow(t, "other", access.Lock, "p", access.All)
	limits := server.DefaultLimits
	limits.Calls, limits.CallsPerSubject = 20, 4 // of which 15 and 3 may be acquisitions
	s := r.serve(t, limits, nil)
	held := r.acquire(t, s.plain("ci"), locking(mainRef)).GetAcquired()
	wait := func(subject string) (*connect.Response[refdbv1.AcquireResponse], error) {
		a := locking(mainRef)
		a.Wait = durationpb.New(30 * time.Second)
		return s.plain(subject).Acquire(t.Context(), connect.NewRequest(a))
	}
	ended := make(chan error, 4)
	for range 4 {
		go func() {
			_, err := wait("ci")
			ended <- err
		}()
	}
	err := <-ended
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "the subject has 3 acquisitions") || !strings.Contains(err.Error(), "nothing was done") {
		t.Errorf("one of four is not refused: %v", err)
	}
	if got := s.metric(t, "other", `refdb_server_rejected_total{reason="subject_lasting_calls"}`); got != "1" {
		t.Errorf("%s were rejected", got)
	}
	if got := s.metric(t, "other", `refdb_server_calls_total{method="/refdb.v1.RefdbService/Acquire",result="resource_exhausted"}`); got != "" {
		t.Errorf("%s calls were refused, which are rejected before they are calls", got)
	}
	if e, err := s.plain("ci").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: held.Lock})); err != nil || e.Msg.GetExtended() == nil {
		t.Errorf("Extend: %v, %v", e, err)
	}
	if got := r.acquire(t, s.plain("other"), locking(nextRef)).GetAcquired(); got == nil {
		t.Error("another subject is refused")
	}
	s.Drain()
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "they have ended", func() bool { return s.metric(t, "other", "refdb_server_calls") == "0" })
	if e, err := wait("ci"); err != nil || e.Msg.GetLocked() == nil {
		t.Errorf("afterwards: %v, %v", e, err)
	}
}

func TestCallsThatWaitForManyRefsLeaveBytesToExtendLocks(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	subjects := []string{"one", "two", "three"}
	for _, subject := range subjects {
		r.allow(t, subject, access.Lock, "p", access.All)
	}
	limits := server.DefaultLimits
	limits.Body, limits.BodiesPerSubject, limits.Bodies = 100_000, 400_000, 600_000 // of which 300,000 and 450,000 may wait
	s := r.serve(t, limits, nil)
	var held []*refdbv1.Lock
	for i, subject := range subjects {
		held = append(held, r.acquire(t, s.plain(subject), locking(fmt.Sprint("refs/held/", i))).GetAcquired().Lock)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	large := locking("refs/held/2") // some 90,000 bytes
	for i := range 900 {
		large.Refs = append(large.Refs, fmt.Sprintf("refs/wanted/%080d", i))
	}
	large.Wait = durationpb.New(30 * time.Second)
	waiting, ended := 0, make(chan error, 10)
	// One more than can wait is refused.
	fill := func(subject string, n int, message string) {
		t.Helper()
		for range n + 1 {
			go func() {
				_, err := s.plain(subject).Acquire(ctx, connect.NewRequest(large))
				ended <- err
			}()
		}
		waiting += n
		if err := <-ended; connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	fill("one", 3, "the subject's acquisitions at this server have 300000 bytes")
	fill("two", 2, "the acquisitions of this server have 450000 bytes")
	for i, subject := range subjects {
		if e, err := s.plain(subject).Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: held[i]})); err != nil || e.Msg.GetExtended() == nil {
			t.Errorf("Extend of %s: %v, %v", subject, e, err)
		}
	}
	cancel()
	for range waiting {
		if err := <-ended; connect.CodeOf(err) != connect.CodeCanceled {
			t.Error(err)
		}
	}
}

// nothing is a body of zeros.
type nothing struct{}

func (nothing) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// It measures what the process allocates: no other test may run at the same time.
func TestA100MegabyteMessageTakesLittleMemory(t *testing.T) {
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	r.allow(t, "other", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	held := r.acquire(t, s.plain("other"), locking(mainRef)).GetAcquired()
	const size = 100 << 20
	for _, announced := range []int64{size, -1} {
		for _, kind := range []string{"application/json", "application/proto", "application/grpc"} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/Get", io.LimitReader(nothing{}, size))
			if err != nil {
				t.Fatal(err)
			}
			q.ContentLength = announced
			q.Header.Set("Content-Type", kind)
			q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
			// The server closes the connection while the client still sends: the client may miss the response.
			if response, err := patient(http.DefaultTransport).Do(q); err == nil {
				response.Body.Close()
				if kind != "application/grpc" && response.StatusCode != http.StatusBadRequest {
					t.Errorf("%s: %s", kind, response.Status)
				}
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 16*uint64(server.DefaultLimits.Body) {
				t.Errorf("%s: %d bytes were allocated", kind, took)
			}
		}
	}
	eventually(t, "each is refused", func() bool {
		return s.metric(t, "other", `refdb_server_rejected_total{reason="too_large"}`) == "6" && s.metric(t, "other", "refdb_server_calls") == "0"
	})
	if e, err := s.plain("other").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: held.Lock})); err != nil || e.Msg.GetExtended() == nil {
		t.Errorf("another subject's lock: %v, %v", e, err)
	}
}

// idleAt is the environment variable with the address at which a process of this test opens connections.
const idleAt = "REFDB_TEST_IDLE_AT"

const idle = 10_000

// It measures the memory of the process: no other test may run at the same time. The clients are another
// process, so that each has half of the files.
func Test10000IdleConnectionsTakeBoundedMemory(t *testing.T) {
	if address := os.Getenv(idleAt); address != "" {
		openIdle(t, address)
		return
	}
	if testing.Short() {
		t.Skip("left out by -short: 10,000 open connections; make test-all runs it")
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Cur < idle+1000 {
		t.Skipf("left out: 10,000 open connections, as a process may have only %d files open (ulimit -n), %v", files.Cur, err)
	}
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	running := r.run(t, server.Listen{Address: "127.0.0.1:0"}, server.DefaultLimits, server.Stop{Limit: patience})
	s := &serving{rig: r, url: "http://" + running.address.String()}
	eventually(t, "it is ready", func() bool { return balanced(s.url) })
	held := r.acquire(t, s.plain("ci"), locking(mainRef)).GetAcquired()
	before := inUse()
	clients := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	clients.Env = append(os.Environ(), idleAt+"="+running.address.String())
	input, err := clients.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := clients.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := clients.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if line, err := lines.ReadString('\n'); line != "open\n" {
		t.Fatalf("%q, %v", line, err)
	}
	// The server closes connections whose header does not arrive within ten seconds, on a slow machine already now.
	took, open := inUse()-before, openFiles(t)
	if t.Logf("%d bytes for each of %d connections", took/int64(open), open); took > int64(open)*48<<10 || open < idle/2 {
		t.Error("that is too much, or there are too few")
	}
	if e, err := s.plain("ci").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: held.Lock})); err != nil || e.Msg.GetExtended() == nil {
		t.Errorf("a client with a lock: %v, %v", e, err)
	}
	http.DefaultClient.CloseIdleConnections()
	input.Close()
	rest, err := io.ReadAll(lines)
	if err := errors.Join(err, clients.Wait()); err != nil {
		t.Errorf("the clients: %v, %s", err, rest)
	}
}

// openIdle opens connections, half of them with a request that does not end, and keeps them until the
// input ends.
func openIdle(t *testing.T, address string) {
	open := make([]net.Conn, idle)
	dial := func(begin string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_, err = io.WriteString(c, begin)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range open[:idle/2] {
		open[i] = dial("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if status := statusOf(t, open[i]); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	for i := idle / 2; i < idle; i++ {
		open[i] = dial("GET /healthz HTTP/1.1\r\nHost: x\r\n")
	}
	fmt.Println("open")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
	for _, c := range open {
		c.Close()
	}
}

// openFiles returns how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// inUse returns how many bytes of memory this process uses.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
