package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// TextPrefix begins every token, so that scanners for secrets recognise one.
	TextPrefix = "refdb_"
	// MinLife and MaxLife limit the time for which a token is valid.
	MinLife = time.Minute
	MaxLife = 10 * 366 * 24 * time.Hour

	secretBytes = 32
	// ShownID is how many digits of a token's ID people see.
	ShownID = 16
)

// A Token is a credential as the database has it: without its secret.
type Token struct {
	ID      string    `json:"-"` // hex digits of the SHA-256 of the token's text
	Subject string    `json:"subject"`
	Expires time.Time `json:"expires"`      // by the database's clock
	By      string    `json:"by,omitempty"` // who created it
	Created time.Time `json:"-"`            // by the database's clock
}

// newSecret returns the text of a new token.
func newSecret() string {
	var secret [secretBytes]byte
	rand.Read(secret[:]) // never fails
	return TextPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
}

// idOf returns the ID of the token with that text; false if no token can have it. The ID is that of
// the text as a whole: two texts that decode to the same bytes are different tokens.
func idOf(text string) (string, bool) {
	secret, ok := strings.CutPrefix(text, TextPrefix)
	if !ok || len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return "", false
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:]), true
}

// checkLife returns an error wrapping driver.ErrInvalid if no token can be valid for that long.
func checkLife(d time.Duration) error {
	if d < MinLife || d > MaxLife {
		return fmt.Errorf("%w life of %s: a token is valid for %s to %s", driver.ErrInvalid, d, MinLife, MaxLife)
	}
	return nil
}
