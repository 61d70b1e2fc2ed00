package postgres

import (
	"encoding/binary"
	"math/bits"
)

// The server's hash functions are Bob Jenkins' lookup3 (public domain) with a seed. They
// are the same in all versions of the server, because partitions by hash rely on them.
const hashInitial = 0x9e3779b9 + 3923095

// textHash is hashtextextended on text in UTF-8.
func textHash(text string, seed uint64) uint64 {
	a := hashInitial + uint32(len(text))
	b, c := a, a
	if seed != 0 {
		a, b, c = mix(a+uint32(seed>>32), b+uint32(seed), c)
	}
	var block [12]byte
	for ; len(text) >= len(block); text = text[len(block):] {
		copy(block[:], text)
		a, b, c = mix(
			a+binary.LittleEndian.Uint32(block[0:]),
			b+binary.LittleEndian.Uint32(block[4:]),
			c+binary.LittleEndian.Uint32(block[8:]))
	}
	clear(block[:])
	copy(block[:], text)
	a += binary.LittleEndian.Uint32(block[0:])
	b += binary.LittleEndian.Uint32(block[4:])
	c += binary.LittleEndian.Uint32(block[8:]) << 8 // its lowest byte is the length's
	return final(a, b, c)
}

// intervalHash is interval_hash_extended on that many microseconds, none of
// them negative, with the seed 0. It folds them to 32 bits.
func intervalHash(micros uint64) uint64 {
	const a = hashInitial + 4 // bytes
	return final(a+uint32(micros^micros>>32), a, a)
}

func final(a, b, c uint32) uint64 {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return uint64(b)<<32 | uint64(c)
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
	a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	return a, b, c
}
