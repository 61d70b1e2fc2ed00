package smarthttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
)

// maxListRequest is the maximum size, in bytes, of a request that is recognized as one for a list
// of refs.
const maxListRequest = 64 << 10

// lsRefsName returns a name for the list of refs that a request of protocol version 2 asks for
// (ls-refs). It returns false for any other request. Requests with the same name get the same
// answer. encoding is the Content-Encoding of body.
func lsRefsName(body []byte, encoding string) (name string, ok bool) {
	if isGzip(encoding) {
		var err error
		if body, err = io.ReadAll(io.LimitReader(&gzipBody{from: bytes.NewReader(body)}, maxListRequest+1)); err != nil || len(body) > maxListRequest {
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
			continue // the client's identity has no effect on the answer
		}
		first = false
		io.WriteString(sum, strconv.Itoa(len(line))+" "+line)
	}
	return "", false
}

// The lines that packet returns for packets without a text. No text contains a NUL.
const (
	flush     = "\x000"
	delimiter = "\x001"
)

// packet cuts the first packet of git's protocol off b.
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
