package smarthttp

import (
	"net/http"
	"strings"
)

// A service is a kind of request in git's smart HTTP protocol.
type service int

const (
	advertiseRefs service = iota // the refs to fetch or, in version 2, capabilities
	advertisePush                // the refs to push to
	uploadPack                   // a fetch or, in protocol version 2, a list of refs
	receivePack                  // a push
)

// path returns the part of the URL's path that follows the repository.
func (s service) path() string {
	switch s {
	case uploadPack:
		return "git-upload-pack"
	case receivePack:
		return "git-receive-pack"
	}
	return "info/refs"
}

// reads reports whether the service is a read, which must see the pushes to other sites.
func (s service) reads() bool { return s == advertiseRefs || s == uploadPack }

// route returns the project and the service of a request. If the request is not one of the smart
// protocol, status is the HTTP status with which it is refused; otherwise status is 0.
func route(r *http.Request) (project string, s service, status int) {
	method := http.MethodPost
	path := strings.TrimPrefix(r.URL.Path, "/")
	if rest, ok := strings.CutSuffix(path, "/info/refs"); ok {
		project, method = rest, http.MethodGet
		switch r.URL.RawQuery {
		case "service=git-upload-pack":
			s = advertiseRefs
		case "service=git-receive-pack":
			s = advertisePush
		default:
			return "", 0, http.StatusForbidden
		}
	} else if rest, ok := strings.CutSuffix(path, "/git-upload-pack"); ok {
		project, s = rest, uploadPack
	} else if rest, ok := strings.CutSuffix(path, "/git-receive-pack"); ok {
		project, s = rest, receivePack
	} else {
		return "", 0, http.StatusNotFound
	}
	if r.Method != method {
		return "", 0, http.StatusMethodNotAllowed
	}
	return strings.TrimSuffix(project, ".git"), s, 0
}
