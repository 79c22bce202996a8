package failure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
)

// dnsRetries is how often an unknown host is looked up again: a machine that has just booted
// may not know its name servers yet.
const dnsRetries = 3

// Limited returns an error that is worth only so many retries.
func Limited(retries int, err error) error { return &limitedError{retries, err} }

type limitedError struct {
	retries int
	error
}

func (e *limitedError) Unwrap() error { return e.error }

// Retries returns the number of retries.
func (e *limitedError) Retries() int { return e.retries }

// Retries returns how often a retry may help at most, false when nothing limits it.
func Retries(err error) (int, bool) {
	var r interface{ Retries() int }
	if errors.As(err, &r) {
		return r.Retries(), true
	}
	c, _ := causeOf(err)
	return c.retries, c.retries > 0
}

// A cause is something that only a person can change.
type cause struct {
	matches func(error) bool
	advice  func(error) string // what to do about it, empty when that is not clear; may be nil
	retries int                // that are worth it nevertheless
}

// causes are all that are known, whichever part of the program meets them: those that are worth
// no retry first, for an error that has several. Errors that came as text from another process
// must have got their errno back (WithErrno).
var causes = []cause{
	{matches: isErrno(syscall.ENOSPC, syscall.EDQUOT), advice: atFileSystem("free space on the file system at %")},
	{matches: isErrno(syscall.EROFS), advice: atFileSystem("the file system at % is mounted read-only")},
	{matches: isErrno(syscall.EMFILE), advice: always("raise the limit of open files (ulimit -n)")},
	{matches: isErrno(syscall.ENAMETOOLONG)}, // such as what is below a directory with a long path
	{matches: IsUntrusted, advice: always(AdviceUntrusted)},
	{matches: isCertificate},
	{matches: isUnknownHost, advice: always("check the name and the name servers of this machine"), retries: dnsRetries},
}

// causeOf returns the first cause that the error has, and false if there is none.
func causeOf(err error) (cause, bool) {
	i := slices.IndexFunc(causes, func(c cause) bool { return c.matches(err) })
	if i < 0 {
		return cause{}, false
	}
	return causes[i], true
}

// hasPermanentCause reports whether the error has a cause that does not go away by itself.
func hasPermanentCause(err error) bool {
	c, ok := causeOf(err)
	return ok && c.retries == 0
}

// HasAdvice reports whether WithAdvice knows what to do about the error.
func HasAdvice(err error) bool {
	c, ok := causeOf(err)
	return ok && c.advice != nil
}

// WithAdvice adds to the message of an error what to do about its cause, where that is clear.
func WithAdvice(err error) error {
	c, ok := causeOf(err)
	if !ok || c.advice == nil {
		return err
	}
	if advice := c.advice(err); advice != "" && !strings.Contains(err.Error(), advice) {
		return WithMessage(err.Error()+": "+advice, err)
	}
	return err
}

func isErrno(all ...syscall.Errno) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(all, func(no syscall.Errno) bool { return errors.Is(err, no) })
	}
}

// AdviceUntrusted is the advice about an untrusted certificate. A message in which it is the beginning of
// more advice gets no other.
const AdviceUntrusted = "add the server's CA certificate to those of this machine"

// IsUntrusted reports whether a server's certificate is of an unknown authority.
func IsUntrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	return errors.As(err, &authority)
}

// isCertificate reports whether a server's certificate is not valid. One that is not valid yet
// may become so: the machine's clock may not be set yet.
func isCertificate(err error) bool {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return invalid.Cert == nil || !time.Now().Before(invalid.Cert.NotBefore)
	}
	var failed *tls.CertificateVerificationError
	var host x509.HostnameError
	return errors.As(err, &failed) || errors.As(err, &host) || errors.As(err, &invalid)
}

func isUnknownHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

func always(advice string) func(error) string { return func(error) string { return advice } }

// atFileSystem returns advice about the file system of the path that an error names.
func atFileSystem(advice string) func(error) string {
	return func(err error) string {
		path := pathOf(err)
		if path == "" {
			return ""
		}
		return strings.ReplaceAll(advice, "%", mountPoint(path))
	}
}

// failedCall matches an operation on a file, or from one to another, in the text of an error; crun
// quotes the file.
var failedCall = pattern(`\b(?:open|openat|create|mkdir|mkdirat|mknod|write|truncate|fallocate|sync|rename|link|symlink|copy_file_range|chmod|chown) (?:/\S+ )?\x60?(/[^\s:\x60]+)`)

// pathOf returns the path in an error of a file system on a disk, empty when there is none.
func pathOf(err error) string {
	path := ""
	var p *fs.PathError
	if errors.As(err, &p) {
		path = p.Path
	} else if m := failedCall().FindStringSubmatch(err.Error()); m != nil {
		path = m[1]
	}
	// What was mounted at a container's rootfs is unmounted.
	if !filepath.IsAbs(path) || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") || strings.Contains(path, "/rootfs/") {
		return ""
	}
	return path
}

// mountPoint returns the directory at which the file system of a path, which need not exist, is
// mounted.
func mountPoint(path string) string {
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if found, err := filepath.EvalSymlinks(dir); err == nil {
			mounts, err := mountinfo.GetMounts(above(found))
			if err != nil {
				return path
			}
			return lowest(mounts)
		}
		if dir == "/" {
			return dir
		}
	}
}

// above selects the mount points that are the path or above it.
func above(path string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) {
		return path != m.Mountpoint && !strings.HasPrefix(path, strings.TrimSuffix(m.Mountpoint, "/")+"/"), false
	}
}

// lowest returns the lowest of the mount points: the device does not tell, since a bind mount may be
// read-only on one that is not.
func lowest(mounts []*mountinfo.Info) string {
	at := "/"
	for _, m := range mounts {
		if len(m.Mountpoint) > len(at) {
			at = m.Mountpoint
		}
	}
	return at
}
