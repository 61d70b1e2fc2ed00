package gitrepo

import (
	"io"
	"os"
)

const (
	blockBytes = 4 << 10
	maxBlocks  = 256
)

// blocks caches blocks of a file that doesn't change: bisections read the same places again and
// again.
type blocks struct {
	file *os.File
	seen map[int64][]byte // by number
}

func (b *blocks) ReadAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		block, err := b.block((at + int64(n)) / blockBytes)
		if err != nil {
			return n, err
		}
		skip := int((at + int64(n)) % blockBytes)
		if skip >= len(block) {
			return n, io.EOF
		}
		n += copy(p[n:], block[skip:])
	}
	return n, nil
}

// block returns a block, which is shorter at the end of the file and empty after it.
func (b *blocks) block(number int64) ([]byte, error) {
	if block, ok := b.seen[number]; ok {
		return block, nil
	}
	block := make([]byte, blockBytes)
	n, err := b.file.ReadAt(block, number*blockBytes)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(b.seen) == maxBlocks {
		clear(b.seen)
	}
	b.seen[number] = block[:n]
	return block[:n], nil
}
