package smarthttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
)

// maxLook is how much of a request's body is looked at: a list of refs is not asked for with more.
const maxLook = 64 << 10

// listing returns a name for what a request of protocol version 2 asks for if that is a list of refs (ls-refs). Requests with the same
// name get the same answer. encoding is that of the body, as HTTP says it.
func listing(body []byte, encoding string) (name string, ok bool) {
	if packed(encoding) {
		var err error
		if body, err = io.ReadAll(io.LimitReader(&unpacked{from: bytes.NewReader(body)}, maxLook+1)); err != nil || len(body) > maxLook {
			return "", false
		}
	} else if encoding != "" {
		return "", false
	}
	const command = "command=ls-refs"
	sum := sha256.New()
	first, arguments := true, false
	for len(body) > 0 {
		line, rest, ok := packet(body)
		if !ok {
			return "", false
		}
		body = rest
		switch {
		case first && strings.TrimSuffix(line, "\n") != command:
			return "", false
		case line == flush:
			if len(body) > 0 {
				return "", false // another command follows
			}
			return hex.EncodeToString(sum.Sum(nil)), true
		case line == delimiter:
			arguments = true
		case !arguments && (strings.HasPrefix(line, "agent=") || strings.HasPrefix(line, "session-id=")):
			continue // who asks has no effect
		}
		first = false
		io.WriteString(sum, strconv.Itoa(len(line))+" "+line)
	}
	return "", false
}

// What packet returns for packets without a text. No text has a NUL.
const (
	flush     = "\x000"
	delimiter = "\x001"
)

// packet cuts the first packet of git's protocol off.
func packet(b []byte) (line string, rest []byte, ok bool) {
	if len(b) < 4 {
		return "", nil, false
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	switch {
	case err != nil:
		return "", nil, false
	case n == 0:
		return flush, b[4:], true
	case n == 1:
		return delimiter, b[4:], true
	case n < 4 || int(n) > len(b) || bytes.IndexByte(b[4:n], 0) >= 0:
		return "", nil, false
	}
	return string(b[4:n]), b[n:], true
}
