package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxFreezeReason is the maximum length of a [Freeze]'s reason, in bytes.
const MaxFreezeReason = 500

// freezeRule is the first word of the line that records a project's freeze. The line precedes all
// rules of the project. A program without support for freezes takes the line for a rule of an
// unknown kind, and refuses all pushes to the project.
const freezeRule = "frozen"

// A Freeze records that no ref of a project may be moved, and the reason. The zero Freeze means
// that the project is not frozen.
//
// The database stores the Freeze as the first line of [ProjectRequest].Rules, because every request
// that moves a ref has to read it: see [WithFreeze] and [CutFreeze].
type Freeze struct {
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"` // who froze the project; "" if unknown
	Since  time.Time `json:"since,omitzero"`
}

// String returns the reason, followed by the name and the time in parentheses as far as they are
// known.
func (f Freeze) String() string {
	var more []string
	if f.By != "" {
		more = append(more, "by "+f.By)
	}
	if !f.Since.IsZero() {
		more = append(more, "since "+f.Since.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if more == nil {
		return f.Reason
	}
	return f.Reason + " (" + strings.Join(more, " ") + ")"
}

// CheckFreezeReason returns an error wrapping [ErrInvalid] if reason can't be the reason of a
// [Freeze]: it has to be one non-empty line of printable UTF-8, of at most [MaxFreezeReason] bytes.
func CheckFreezeReason(reason string) error {
	var fault string
	switch i := strings.IndexFunc(reason, unprintable); {
	case strings.TrimSpace(reason) == "":
		fault = "it is empty"
	case !utf8.ValidString(reason):
		fault = "it is not UTF-8"
	case i >= 0:
		r, _ := utf8.DecodeRuneInString(reason[i:])
		fault = fmt.Sprintf("it holds the character %q", r)
	case len(reason) > MaxFreezeReason:
		fault = fmt.Sprintf("it is %d bytes long, at most %d are allowed", len(reason), MaxFreezeReason)
	default:
		return nil
	}
	return fmt.Errorf("%w reason for a freeze: %s", ErrInvalid, fault)
}

// unprintable reports whether r would have any effect on a pusher's terminal other than to show a
// character.
func unprintable(r rune) bool { return !unicode.IsGraphic(r) }

// WithFreeze returns rules preceded by the line of f, as the database stores them. The argument
// rules must not contain such a line.
func WithFreeze(f Freeze, rules string) string {
	if f == (Freeze{}) {
		return rules
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(f) // can't fail for strings and a time; it adds the newline
	if rules == "" {
		line.Truncate(line.Len() - 1)
	}
	return freezeRule + " " + line.String() + rules
}

// CutFreeze is the inverse of [WithFreeze]: it returns the rules without the line of the freeze,
// and reports whether there was such a line. If the line can't be parsed, the project is
// nevertheless frozen: the reason is then the text of the line, or says that no reason is recorded.
// So f is never zero if frozen is true.
func CutFreeze(stored string) (f Freeze, rules string, frozen bool) {
	line, rules, _ := strings.Cut(stored, "\n")
	kind, text, _ := strings.Cut(line, " ")
	if kind != freezeRule {
		return Freeze{}, stored, false
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil || CheckFreezeReason(f.Reason) != nil {
		f = Freeze{Reason: strings.TrimSpace(strings.Map(printable, text))}
	}
	f.By, f.Since = strings.Map(printable, f.By), f.Since.UTC()
	if f.Reason == "" {
		f.Reason = "no reason is recorded"
	}
	if len(f.Reason) > MaxFreezeReason {
		f.Reason = strings.ToValidUTF8(f.Reason[:MaxFreezeReason], "")
	}
	return f, rules, true
}

// printable returns r, or a question mark if a terminal can't show it.
func printable(r rune) rune {
	if unprintable(r) {
		return '?'
	}
	return r
}
