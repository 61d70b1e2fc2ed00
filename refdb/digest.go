package refdb

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Digest returns what stands for names in logs: 16 hex digits of an
// HMAC-SHA256 of parts under key. With the key of [Options] an operator can
// find the log lines about a lock: they carry Digest(key, project, ref) of the
// lock's first ref.
func Digest(key []byte, parts ...string) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		// The length keeps ("a", "bc") apart from ("ab", "c").
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
