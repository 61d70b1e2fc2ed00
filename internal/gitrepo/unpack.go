package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"
)

// maxLooseObjects is the number of objects up to which git unpacks what is pushed, as receive.unpackLimit has it.
const maxLooseObjects = 100

// UnpackLimits bound what git may use to unpack a pack that another site stored: a few bytes may stand for any number of them.
type UnpackLimits struct {
	Memory uint64 // bytes of git's own
	// Seconds of a processor that any pack gets, and those that each MiB of it adds.
	Seconds, SecondsPerMiB uint64
	// Loose is the size in bytes up to which an object becomes a file of its own, compressed. A pack with a larger one stays a pack, which takes
	// about as much room on the disk as it had on its way, whatever its objects unfold to.
	Loose uint64
	// Added bounds the bytes of the pack's index, and of objects which the pack builds on, and that git adds to it.
	Added uint64
	// Free is the number of bytes on the disk of which a pack gets no more than it takes itself, with its index.
	Free uint64
}

// DefaultUnpackLimits returns the limits that sites have. By git's core.bigFileThreshold no delta has a result of more than 512 MiB. Git takes less than
// a second for a MiB of the history of a large project.
func DefaultUnpackLimits() UnpackLimits {
	return UnpackLimits{Memory: 4 << 30, Seconds: 60, SecondsPerMiB: 4, Loose: 16 << 20, Added: 4 << 30, Free: 256 << 20}
}

var (
	// ErrUnpackLimit: git needs more to unpack a pack than it may use.
	ErrUnpackLimit = errors.New("unpacking it exceeds a limit")
	// ErrNoRoom: the disk is too full to unpack a pack.
	ErrNoRoom = errors.New("the disk is too full")
	// ErrUnpack: git can't unpack a pack.
	ErrUnpack = errors.New("git can't unpack it")
)

// An Incoming is a pack that is to be unpacked.
type Incoming struct {
	Size int64
	Open func() io.Reader // from its begin; it may be called several times
}

// Unpack stores the objects of a pack, durably if git's settings say so. After an error none of its files is left, unless the process was killed.
//
// The objection is what git's fsck says against the form of an object of the pack, as it does where transfer.fsckObjects is set; "" if nothing. Such a pack is
// stored all the same: whether that matters is for a project to say where a push enters. The look costs git next to nothing, but
// it stops there: then the pack is unpacked once more, without it.
//
// An error wraps [ErrPack], [ErrUnpack], [ErrUnpackLimit] or [ErrNoRoom] unless it is one of reading the pack.
func (r *Repo) Unpack(ctx context.Context, in Incoming, l UnpackLimits) (objection string, err error) {
	if objection, err = r.unpack(ctx, in, l); err != nil {
		return "", fmt.Errorf("unpacking into %q: %w", r.path, err)
	}
	return objection, nil
}

// An unpacking is a git command that unpacks, and the flag by which it looks at the form of objects.
type unpacking struct {
	command []string
	judging string
	file    uint64 // bytes of the largest file that it may write
}

func (r *Repo) unpack(ctx context.Context, in Incoming, l UnpackLimits) (objection string, err error) {
	var header [PackHeader]byte
	if _, err := io.ReadFull(in.Open(), header[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", errors.Join(ErrPack, err)
	} else if err != nil {
		return "", err
	}
	n, err := PackObjects(header[:])
	if err != nil {
		return "", err
	}
	free, err := freeBytes(r.objects())
	if err != nil {
		return "", pathReason(err)
	}
	size := uint64(max(in.Size, 0))
	if free < size {
		return "", fmt.Errorf("%w: %d MiB are free, and the pack has %d: make room", ErrNoRoom, free>>20, size>>20)
	}
	room := ownRoom(size)
	if free > l.Free {
		room = max(room, free-l.Free)
	}
	if n <= maxLooseObjects {
		loose := unpacking{[]string{"unpack-objects", "-q"}, "--strict", min(l.Loose, room/uint64(max(n, 1)))}
		objection, err = r.judgeAndUnpack(ctx, in, loose, l)
		if !errors.Is(err, errFileSize) {
			return objection, err
		}
	}
	packed := unpacking{[]string{"index-pack", "--stdin", "--fix-thin"}, "--fsck-objects", min(size+l.Added, room)}
	objection, err = r.judgeAndUnpack(ctx, in, packed, l)
	if errors.Is(err, errFileSize) {
		err = fmt.Errorf("%w: %d MiB on the disk", ErrUnpackLimit, packed.file>>20)
	}
	return objection, err
}

// ownRoom returns the bytes of the larger one of a pack and its index, at most: an object takes 36 bytes of the index, and no fewer than 9 of the pack.
func ownRoom(size uint64) uint64 { return 4*size + 64<<10 }

// judgeAndUnpack unpacks, and if git refuses, once more without a look at the form of objects: git may also stop because it misses what objects lead to.
func (r *Repo) judgeAndUnpack(ctx context.Context, in Incoming, u unpacking, l UnpackLimits) (objection string, err error) {
	complaints, err := r.runUnpacking(ctx, in, append(u.command, u.judging), u.file, l)
	if !errors.Is(err, ErrUnpack) {
		return "", err
	}
	_, err = r.runUnpacking(ctx, in, u.command, u.file, l)
	return objectionOf(complaints), err
}

var objectionLine = regexp.MustCompile(`(?m)^(?:error|warning): (object [0-9a-f]+: [A-Za-z0-9]+: .*)$`)

// objectionOf returns what git's fsck says against an object; "" if nothing.
func objectionOf(complaints string) string {
	if m := objectionLine.FindStringSubmatch(complaints); m != nil {
		return m[1]
	}
	return ""
}

// errFileSize: a file would have become larger than it may.
var errFileSize = errors.New("a file is too large")

// runUnpacking runs a git command that unpacks, and returns what it complains about.
func (r *Repo) runUnpacking(ctx context.Context, in Incoming, args []string, file uint64, l UnpackLimits) (complaints string, err error) {
	q, err := r.newQuarantine()
	if err != nil {
		return "", pathReason(err)
	}
	cmd := r.interruptible(ctx, args...)
	q.confine(cmd)
	source := &source{from: in.Open()}
	gate := &gated{open: make(chan struct{}), from: source}
	cmd.Stdin = gate
	var said bytes.Buffer
	cmd.Stderr = &limited{to: &said, left: 1 << 16}
	if err = cmd.Start(); err == nil {
		gate.err = bound(cmd.Process.Pid, l.bounds(in.Size, file))
		close(gate.open)
		err = cmd.Wait()
	}
	if err == nil {
		return "", q.release()
	}
	switch {
	case ctx.Err() != nil || gate.err != nil || source.err != nil || cmd.ProcessState == nil:
		err = errors.Join(source.err, failure(ctx, err, said.String()))
	default:
		err = l.reason(cmd.ProcessState.Sys(), in.Size, failure(ctx, err, said.String()))
	}
	return said.String(), errors.Join(err, q.remove())
}

// seconds returns the time of a processor that a pack gets.
func (l UnpackLimits) seconds(size int64) uint64 {
	return l.Seconds + l.SecondsPerMiB*(uint64(max(size, 0))>>20)
}

func (l UnpackLimits) bounds(size int64, file uint64) bounds {
	return bounds{memory: l.Memory, seconds: l.seconds(size), file: file}
}

// reason tells the limit that a git exceeded from what it has against the pack.
func (l UnpackLimits) reason(state any, size int64, said error) error {
	if s, ok := state.(syscall.WaitStatus); ok && s.Signaled() {
		switch s.Signal() {
		case syscall.SIGXFSZ:
			return errFileSize
		case syscall.SIGXCPU:
			return fmt.Errorf("%w: %d s of a processor", ErrUnpackLimit, l.seconds(size))
		case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE:
			return fmt.Errorf("%w: %w", ErrUnpack, said) // it crashes on it
		}
		return said
	}
	text := said.Error()
	switch {
	case strings.Contains(strings.ToLower(text), "out of memory"), strings.Contains(text, "Cannot allocate memory"):
		return fmt.Errorf("%w: %d MiB of memory", ErrUnpackLimit, l.Memory>>20)
	case strings.Contains(text, "File too large"):
		return errFileSize
	case strings.Contains(text, "No space left on device"):
		return fmt.Errorf("%w: %w", ErrNoRoom, said)
	}
	return fmt.Errorf("%w: %w", ErrUnpack, said)
}

// A source is what a pack is read from, and the error at which that ended.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// A gated reader gives nothing before it is opened: a process is bound before it gets its input.
type gated struct {
	open chan struct{}
	err  error // set before: why nothing can be read
	from io.Reader
}

func (g *gated) Read(p []byte) (int, error) {
	<-g.open
	if g.err != nil {
		return 0, g.err
	}
	return g.from.Read(p)
}
