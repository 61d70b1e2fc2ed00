package driver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// A Cursor says how far a reader of changes has come. It is valid for one database, and only as
// long as that database still has what the reader has seen. The zero Cursor stands before the
// oldest change that the history still has. Applications treat it as opaque: its fields are for the
// reader in package refdb.
type Cursor struct {
	// Mark: all changes up to it were read.
	Mark ChangeKey
	// Durable: no change appears at or below Mark any more, not even after a crash of the database.
	// Marks of programs up to version 10 of the schema were the last position that had ended
	// ([HistoryState].Ended), which other changes may have got since.
	Durable bool
	// Epoch is the one that Mark is in.
	Epoch string
	// Last is the last change that was read, which the database must still have; its Ref is "" if
	// there is none.
	Last   ChangeKey
	LastOp string
}

// Position returns the last position up to which all changes were read.
func (c Cursor) Position() Position { return c.Mark.Position - 1 }

// cursorText is what the text of a Cursor encodes.
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

// String returns a text for [ParseCursor]: letters, digits, "-" and "_"; "" for the zero Cursor.
func (c Cursor) String() string {
	if c.Epoch == "" {
		return ""
	}
	// Names are UTF-8: they can be encoded.
	text, _ := json.Marshal(cursorText{c.Epoch, c.Mark, c.Last, c.LastOp, c.Durable, cursorVersion})
	return cursorPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// ParseCursor is the reverse of [Cursor.String]. The error wraps [ErrInvalid].
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
