package gitrepo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packed is one version of the file packed-refs. Git never changes it, but
// replaces it by another, so that an open one keeps its contents. A nil one, for
// none, has no refs.
type packed struct {
	file   *os.File
	text   *blocks
	info   fs.FileInfo
	start  int64 // of the first ref
	sorted bool
	repo   *Repo
}

func (r *Repo) packedPath() string { return filepath.Join(r.common, "packed-refs") }

func (r *Repo) openPacked() (*packed, error) {
	f, err := os.Open(r.packedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &packed{file: f, text: &blocks{file: f, seen: map[int64][]byte{}}, repo: r}
	if p.info, err = f.Stat(); err == nil {
		err = p.readHeader()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

func (p *packed) close() {
	if p != nil {
		p.file.Close()
	}
}

// current reports whether the repository still has this version. The open
// file keeps its inode from being reused.
func (p *packed) current(r *Repo) (bool, error) {
	info, err := os.Stat(r.packedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return p == nil, nil
	}
	return p != nil && os.SameFile(p.info, info), err
}

func (p *packed) readHeader() error {
	line, err := p.line(0)
	traits, ok := strings.CutPrefix(string(line), "# pack-refs with:")
	if err != nil || !ok {
		return err
	}
	p.start = int64(len(line)) + 1
	p.sorted = slices.Contains(strings.Fields(traits), "sorted")
	return nil
}

// find returns the value of a ref; empty if it isn't here.
func (p *packed) find(name string) (string, error) {
	switch {
	case p == nil:
		return "", nil
	case p.sorted:
		return p.bisect(name)
	default:
		return p.scan(name)
	}
}

func (p *packed) bisect(name string) (string, error) {
	// Both are where a ref's line begins, or the end.
	low, high := p.start, p.info.Size()
	for low < high {
		at, err := p.begin(low + (high-low)/2)
		if err != nil {
			return "", err
		}
		line, err := p.line(at)
		if err != nil {
			return "", err
		}
		ref, err := p.parse(line)
		if err != nil {
			return "", err
		}
		switch strings.Compare(name, ref.Name) {
		case 0:
			return ref.Value, nil
		case -1:
			high = at
		case 1:
			if low, err = p.next(at + int64(len(line)) + 1); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// begin returns where the ref's line begins that at is in, or in whose peeled ID.
func (p *packed) begin(at int64) (int64, error) {
	var buf [512]byte
	for end := at; end > p.start; {
		from := max(p.start, end-int64(len(buf)))
		part := buf[:end-from]
		if _, err := p.text.ReadAt(part, from); err != nil {
			return 0, p.broken(err)
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			begin := from + int64(i) + 1
			peeled, err := p.peeled(begin)
			if err != nil || !peeled {
				return begin, err
			}
		}
		end = from
	}
	return p.start, nil
}

// next is at, or past the peeled ID that is there.
func (p *packed) next(at int64) (int64, error) {
	peeled, err := p.peeled(at)
	if err != nil || !peeled {
		return at, err
	}
	line, err := p.line(at)
	return at + int64(len(line)) + 1, err
}

func (p *packed) peeled(at int64) (bool, error) {
	var c [1]byte
	_, err := p.text.ReadAt(c[:], at)
	if err == io.EOF {
		return false, nil
	}
	return c[0] == '^', err
}

// line reads up to the end of the line, which it leaves out. At the end of the
// file it is empty.
func (p *packed) line(at int64) ([]byte, error) {
	for size := 256; ; size *= 4 {
		buf := make([]byte, size)
		n, err := p.text.ReadAt(buf, at)
		if end := bytes.IndexByte(buf[:n], '\n'); end >= 0 {
			return buf[:end], nil
		}
		if err == io.EOF && n == 0 {
			return nil, nil
		}
		if err != nil {
			return nil, p.broken(err)
		}
	}
}

// scan looks through a file that is in no order.
func (p *packed) scan(name string) (string, error) {
	in := bufio.NewReader(io.NewSectionReader(p.file, p.start, p.info.Size()-p.start))
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			return "", nil
		}
		if err != nil {
			return "", p.broken(err)
		}
		if line[0] == '^' || line[0] == '#' {
			continue
		}
		ref, err := p.parse([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			return "", err
		}
		if ref.Name == name {
			return ref.Value, nil
		}
	}
}

func (p *packed) parse(line []byte) (Ref, error) {
	value, name, ok := strings.Cut(string(line), " ")
	value = strings.ToLower(value)
	if !ok || !p.repo.isID(value) {
		return Ref{}, fmt.Errorf("packed-refs holds the line %q", line[:min(len(line), 200)])
	}
	return Ref{Name: name, Value: value}, nil
}

// broken explains an end that comes too early.
func (p *packed) broken(err error) error {
	if err == io.EOF {
		return errors.New("packed-refs ends in the middle of a line")
	}
	return err
}
