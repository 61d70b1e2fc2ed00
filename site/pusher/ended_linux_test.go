package pusher_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// The kernel gives the IDs of processes that have ended to threads, too.
func TestAProcessWhoseIDIsAThreadsByNowHasEnded(t *testing.T) {
	t.Parallel()
	name, err := pusher.ThisProcess()
	if err != nil {
		t.Fatal(err)
	}
	threads, done := make(chan int), make(chan struct{})
	defer close(done)
	for range 2 {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			threads <- unix.Gettid()
			<-done
		}()
	}
	tid, other := <-threads, <-threads
	if tid == os.Getpid() { // the first thread has the process's ID
		tid = other
	}
	fields := strings.Split(name, ":")
	if pusher.ProvenEnded(name) {
		t.Error("this process has ended")
	}
	fields[1] = fmt.Sprint(tid)
	if !pusher.ProvenEnded(strings.Join(fields, ":")) {
		t.Error("a process whose ID is a thread's has not ended")
	}
}
