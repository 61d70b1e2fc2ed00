// Package testpack builds packs that no git makes, such as one whose few bytes unfold to very many, for tests of what a site does about them.
package testpack

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
)

// Types of objects in a pack. https://git-scm.com/docs/gitformat-pack
const (
	Commit = 1
	Tree   = 2
	Blob   = 3

	offsetDelta = 6
	refDelta    = 7
)

var names = map[int]string{Commit: "commit", Tree: "tree", Blob: "blob"}

// ID returns the ID of an object of n bytes that content yields.
func ID(kind int, n int64, content io.Reader) string {
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", names[kind], n)
	if copied, err := io.Copy(sum, content); err != nil || copied != n {
		panic(fmt.Sprintf("%d of %d bytes: %v", copied, n, err))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// A Pack is one that is being built.
type Pack struct {
	body  bytes.Buffer
	count uint32
}

// Add adds an object as it is, and returns its ID.
func (p *Pack) Add(kind int, content []byte) (id string) {
	p.entry(kind, int64(len(content)), nil, bytes.NewReader(content))
	return ID(kind, int64(len(content)), bytes.NewReader(content))
}

// AddZeros adds a blob of n zeros, which takes a thousandth of that, and returns its ID.
func (p *Pack) AddZeros(n int64) (id string) {
	p.header(Blob, n, nil)
	p.body.Write([]byte{0x78, 0x9c})
	// A MiB is compressed once: the race detector makes that some thirty times as slow.
	const MiB = 1 << 20
	var block bytes.Buffer
	z, err := flate.NewWriter(&block, flate.DefaultCompression)
	if err == nil {
		_, err = io.Copy(z, Zeros(MiB))
	}
	if err := errors.Join(err, z.Flush()); err != nil {
		panic(err)
	}
	for range n / MiB {
		p.body.Write(block.Bytes())
	}
	z.Reset(&p.body)
	if _, err := io.Copy(z, Zeros(n%MiB)); err != nil {
		panic(err)
	}
	z.Close()
	const adler = 65521 // what Adler-32 divides by
	p.body.Write(binary.BigEndian.AppendUint32(nil, uint32(n%adler)<<16|1))
	return ID(Blob, n, Zeros(n))
}

// Zeros is a reader of n zeros.
func Zeros(n int64) io.Reader { return io.LimitReader(zeros{}, n) }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Noise returns n bytes that don't get smaller by compression, the same for each seed.
func Noise(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// Repeat adds an object, as a delta of a few bytes, that has the object with the ID base, of size bytes, several times over, and then end.
func (p *Pack) Repeat(base string, size int64, times int, end string) {
	id, err := hex.DecodeString(base)
	if err != nil {
		panic(err)
	}
	p.delta(refDelta, id, size, times, end)
}

// Double adds n objects as deltas, each of the one before, twice over. The first is of the object of size bytes that was added at the offset.
func (p *Pack) Double(offset, size int64, n int) {
	for range n {
		at := p.Offset()
		p.delta(offsetDelta, distance(at-offset), size, 2, "")
		offset, size = at, 2*size
	}
}

// Offset returns where the next object begins.
func (p *Pack) Offset() int64 { return int64(p.body.Len()) }

func (p *Pack) delta(kind int, base []byte, size int64, times int, end string) {
	var d bytes.Buffer
	d.Write(binary.AppendUvarint(nil, uint64(size)))
	d.Write(binary.AppendUvarint(nil, uint64(size)*uint64(times)+uint64(len(end))))
	for range times {
		for at := int64(0); at < size; at += 1 << 16 {
			n := min(size-at, 1<<16)
			// All bytes of the offset, and two of the size, of which 0 stands for 1<<16.
			d.Write([]byte{0x80 | 0x0f | 0x30, byte(at), byte(at >> 8), byte(at >> 16), byte(at >> 24), byte(n), byte(n >> 8)})
		}
	}
	if end != "" {
		d.WriteByte(byte(len(end)))
		d.WriteString(end)
	}
	p.entry(kind, int64(d.Len()), base, &d)
}

// distance encodes how far back the base of a delta is.
func distance(n int64) []byte {
	b := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		b = append([]byte{0x80 | byte(n&0x7f)}, b...)
	}
	return b
}

func (p *Pack) entry(kind int, size int64, base []byte, content io.Reader) {
	p.header(kind, size, base)
	z := zlib.NewWriter(&p.body)
	if _, err := io.Copy(z, content); err != nil {
		panic(err)
	}
	z.Close()
}

// header begins an object.
func (p *Pack) header(kind int, size int64, base []byte) {
	p.count++
	first, left := byte(kind<<4)|byte(size&0x0f), size>>4
	for ; left > 0; left >>= 7 {
		p.body.WriteByte(first | 0x80)
		first = byte(left & 0x7f)
	}
	p.body.WriteByte(first)
	p.body.Write(base)
}

// Bytes returns the pack.
func (p *Pack) Bytes() []byte {
	all := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.count)
	all = append(all, p.body.Bytes()...)
	var sum hash.Hash = sha1.New()
	sum.Write(all)
	return sum.Sum(all)
}
