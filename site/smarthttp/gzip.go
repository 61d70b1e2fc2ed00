package smarthttp

import (
	"compress/gzip"
	"io"
)

// packed reports whether a body has an encoding that git uses.
func packed(encoding string) bool { return encoding == "gzip" || encoding == "x-gzip" }

// An unpacked is what is packed in from. Nothing is read of that before the first Read.
type unpacked struct {
	from io.Reader
	zip  *gzip.Reader
}

func (u *unpacked) Read(p []byte) (int, error) {
	if u.zip == nil {
		zip, err := gzip.NewReader(u.from)
		if err != nil {
			return 0, err
		}
		zip.Multistream(false) // as git reads it
		u.zip = zip
	}
	return u.zip.Read(p)
}
