package server

import (
	"net/http"
	"strings"

	"github.com/globalrefdb/globalrefdb/service/access"
)

// identify returns the subject that sends a request. A token or a JWT in the request decides alone, also if
// it is not valid: the certificate may be that of a proxy, which sends the requests of many clients. The
// error wraps access.ErrUnauthenticated, or is access.ErrStale or wraps issuers.ErrNoKey.
func (s *Server) identify(r *http.Request) (access.Identity, error) {
	if len(r.Header.Values("Authorization")) == 0 && s.clients != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		subject, valid, err := s.clients.identify(r.TLS.PeerCertificates)
		if err != nil {
			return access.Identity{}, err
		}
		return s.cache.Identify(subject, valid)
	}
	text := bearer(r.Header)
	if s.o.Issuers == nil || strings.HasPrefix(text, access.TextPrefix) || !strings.Contains(text, ".") {
		return s.cache.Authenticate(text)
	}
	now, err := s.cache.Now()
	if err != nil {
		return access.Identity{}, err
	}
	subject, valid, err := s.o.Issuers.Verify(text, now)
	if err != nil {
		return access.Identity{}, err
	}
	return s.cache.Identify(subject, valid)
}

// bearer returns the token or JWT of a request; "" if there is none, or more than one.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
