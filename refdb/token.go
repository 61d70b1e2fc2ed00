package refdb

import "time"

// A Token names one version of a lock: the database's timestamp of the
// acquisition, in microseconds since the Unix epoch; on PostgreSQL usually a
// timestamp up to two seconds before it. Of two tokens of the same ref the larger
// is the later, whatever the clock did; no two acquisitions of a ref have the
// same token.
//
// A token makes a lock safe outside this package too: a resource that remembers
// the largest token it has seen, and refuses smaller ones, can't be written by a
// holder that was frozen while it lost its lock.
type Token int64

// TokenOf returns the token that stands for the database's timestamp t, cut to
// microseconds.
func TokenOf(t time.Time) Token { return Token(t.UnixMicro()) }

// Time returns the timestamp that t stands for, in UTC.
func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }
