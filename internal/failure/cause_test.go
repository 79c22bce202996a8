package failure_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

func TestCauses(t *testing.T) {
	t.Parallel()
	path := func(op, name string, no syscall.Errno) error { return &fs.PathError{Op: op, Path: name, Err: no} }
	certificate := func(reason x509.InvalidReason, notBefore time.Time) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{NotBefore: notBefore}, Reason: reason}}
	}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name      string
		err       error
		permanent bool
		retries   int // 0 means no limit
		advice    string
	}{
		{name: "none"},
		{name: "other", err: errors.New("x")},
		{name: "refused", err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}},
		{name: "full disk, with a path", err: path("write", "/none/x", syscall.ENOSPC), permanent: true, advice: "free space on the file system at /"},
		{name: "quota", err: path("write", "/none/x", syscall.EDQUOT), permanent: true, advice: "free space on the file system at /"},
		{name: "full disk, as text", err: failure.WithMessage("a: write /none/x: no space left on device", syscall.ENOSPC), permanent: true, advice: "free space on the file system at /"},
		{name: "full disk, as text of crun", err: failure.WithMessage("mkdir `/none/x`: No space left on device", syscall.ENOSPC), permanent: true, advice: "free space on the file system at /"},
		{name: "no cpus in a cgroup", err: path("write", "/sys/fs/cgroup/x/cgroup.procs", syscall.ENOSPC), permanent: true},
		{name: "read-only", err: fmt.Errorf("a: %w", path("mkdir", "/none/x", syscall.EROFS)), permanent: true, advice: "the file system at / is mounted read-only"},
		{name: "descriptors", err: path("open", "/none", syscall.EMFILE), permanent: true, advice: "raise the limit of open files"},
		{name: "long name", err: path("mkdir", "/none/x", syscall.ENAMETOOLONG), permanent: true},
		{name: "descriptors of the machine", err: path("open", "/none", syscall.ENFILE)},
		{name: "authority", err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, permanent: true, advice: "those of this machine"},
		{name: "another host's certificate", err: fmt.Errorf("a: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}), permanent: true},
		{name: "expired", err: certificate(x509.Expired, past), permanent: true},
		{name: "not yet valid", err: certificate(x509.Expired, future)},
		{name: "bad certificate", err: certificate(x509.NotAuthorizedToSign, past), permanent: true},
		{name: "unknown host", err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, retries: 3, advice: "name servers"},
		{name: "no answer", err: &net.DNSError{Err: "server misbehaving", Name: "x"}},
		{name: "limited", err: fmt.Errorf("a: %w", failure.Limited(1, errors.New("x"))), retries: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := failure.IsPermanent(tt.err); got != tt.permanent {
				t.Errorf("permanent %v", got)
			}
			if got, limited := failure.Retries(tt.err); got != tt.retries || limited != (tt.retries > 0) {
				t.Errorf("retries %d, %v", got, limited)
			}
			if tt.err == nil {
				return
			}
			advised := failure.WithAdvice(tt.err)
			advice, ok := strings.CutPrefix(advised.Error(), tt.err.Error())
			if !ok || !strings.Contains(advice, tt.advice) || tt.advice == "" && advice != "" {
				t.Errorf("advice %q", advised)
			}
			if again := failure.WithAdvice(advised); again.Error() != advised.Error() || !errors.Is(again, tt.err) {
				t.Errorf("advice twice: %q", again)
			}
		})
	}
}

// TestAdviceNamesTheMount: the advice is about the file system, not about one of its files.
func TestAdviceNamesTheMount(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"/proc/1/none", "relative", "/dev/shm/rootfs/x"} {
		err := &fs.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
		if got := failure.WithAdvice(err).Error(); got != err.Error() {
			t.Errorf("%q", got)
		}
	}
	for _, full := range []error{
		&fs.PathError{Op: "write", Path: filepath.Join("/dev/shm", "none", "x"), Err: syscall.ENOSPC},
		&os.LinkError{Op: "symlink", Old: "/none/a", New: "/dev/shm/b", Err: syscall.ENOSPC},
	} {
		if err := failure.WithAdvice(full); !strings.HasSuffix(err.Error(), "free space on the file system at /dev/shm") {
			t.Errorf("%q", err)
		}
	}
}
