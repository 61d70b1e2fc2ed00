package driver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// A Cursor is a reader's position in the changes. It is valid for one database, and only as long as
// that database still has the changes that the reader has seen. The zero Cursor precedes the oldest
// change that is still in the history. Applications treat a Cursor as opaque: its fields are for
// the reader in package refdb.
type Cursor struct {
	// Mark is the key up to which all changes were read.
	Mark ChangeKey
	// Durable says that no further change can appear at or below Mark, not even after a crash of
	// the database. Programs up to version 10 of the schema took Mark from [HistoryState].Ended,
	// whose positions a crash may have given to other changes.
	Durable bool
	// Epoch is the ID of the epoch that contains Mark.
	Epoch string
	// Last is the key of the last change that was read, which the database must still have; its Ref
	// is "" if no change was read. LastOp is the operation of that change.
	Last   ChangeKey
	LastOp string
}

// Position returns the last position of which all changes were read.
func (c Cursor) Position() Position { return c.Mark.Position - 1 }

// cursorText is the content of a Cursor's encoded form.
type cursorText struct {
	Epoch   string
	Mark    ChangeKey
	Last    ChangeKey
	Op      string
	Durable bool
	Version int
}

const (
	cursorPrefix  = "refdb-"
	cursorVersion = 1
)

// String returns the encoded form of c, for [ParseCursor]: letters, digits, "-" and "_"; "" for the
// zero Cursor.
func (c Cursor) String() string {
	if c.Epoch == "" {
		return ""
	}
	// Marshal can't fail, because names are UTF-8.
	text, _ := json.Marshal(cursorText{c.Epoch, c.Mark, c.Last, c.LastOp, c.Durable, cursorVersion})
	return cursorPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// ParseCursor is the inverse of [Cursor.String]. Its error wraps [ErrInvalid].
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	encoded, ok := strings.CutPrefix(text, cursorPrefix)
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	var t cursorText
	if !ok || err != nil || json.Unmarshal(decoded, &t) != nil || t.Epoch == "" {
		return Cursor{}, fmt.Errorf("%w cursor %.100q: it was not printed by this program, or is incomplete", ErrInvalid, text)
	}
	if t.Version != cursorVersion {
		return Cursor{}, fmt.Errorf("%w cursor of version %d: this program knows version %d", ErrInvalid, t.Version, cursorVersion)
	}
	return Cursor{Mark: t.Mark, Durable: t.Durable, Epoch: t.Epoch, Last: t.Last, LastOp: t.Op}, nil
}
