package smarthttp

import (
	"compress/gzip"
	"io"
)

// isGzip reports whether a Content-Encoding is gzip, the only one that git uses.
func isGzip(encoding string) bool { return encoding == "gzip" || encoding == "x-gzip" }

// A gzipBody reads the uncompressed content of from. It does not read from before the first Read.
type gzipBody struct {
	from io.Reader
	zip  *gzip.Reader
}

func (u *gzipBody) Read(p []byte) (int, error) {
	if u.zip == nil {
		zip, err := gzip.NewReader(u.from)
		if err != nil {
			return 0, err
		}
		zip.Multistream(false) // as in git
		u.zip = zip
	}
	return u.zip.Read(p)
}
