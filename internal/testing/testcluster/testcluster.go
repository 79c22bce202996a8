// Package testcluster runs a Kubernetes cluster for tests: etcd, an API server, a controller manager,
// a scheduler and, if asked for, a node with a kubelet and a containerd, all of them real, on
// loopback and with all their files in one directory. `make cluster-tools` builds them. Services work if
// asked for, too, by kube-proxy and a name server of this package.
package testcluster

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/testcerts"
	"github.com/runonce/runonce/internal/testing/testimages"
)

const (
	// Admin is a user who may do everything.
	Admin = "admin"
	// Nobody is a user who may do nothing unless a role is bound.
	Nobody = "nobody"
)

// Cluster is a running cluster.
type Cluster struct {
	// Dir has all its files: logs, keys, kubeconfigs.
	Dir string
	// Server is the address of the API server.
	Server string
	// KubeletClients is the file with the certificate of who signs those of the API server as a client of kubelets.
	KubeletClients string

	bin       string // the directory of the programs
	ports     ports
	etcd      *daemon.Process
	api       *daemon.Process
	manager   *daemon.Process
	scheduler *daemon.Process
	simulator *daemon.Process
	node      *node
}

// ports are those of the parts.
type ports struct{ etcd, peer, api, kubelet int }

// find returns the directory of the programs.
func find() (string, error) {
	root, err := testimages.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "cluster")
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "containerd", "kwok"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("finding the programs of a cluster: %w: run make cluster-tools", err)
		}
	}
	return dir, nil
}

// Start starts a cluster without nodes in a new directory of /run, whose name begins with the prefix: a
// socket's path has to be short. It returns once the API server is ready. Stop and Remove must be called,
// also after an error.
func Start(ctx context.Context, prefix string) (c *Cluster, err error) {
	c = &Cluster{}
	if c.bin, err = find(); err != nil {
		return c, err
	}
	if c.Dir, err = os.MkdirTemp("/run", prefix); err != nil {
		return c, err
	}
	for _, step := range []func(context.Context) error{c.prepare, c.startEtcd, c.StartServer, c.startControllers} {
		if err := step(ctx); err != nil {
			return c, fmt.Errorf("starting a cluster in %s: %w", c.Dir, err)
		}
	}
	return c, nil
}

// prepare writes the keys and the users.
func (c *Cluster) prepare(context.Context) error {
	for _, port := range []*int{&c.ports.etcd, &c.ports.peer, &c.ports.api, &c.ports.kubelet} {
		var err error
		if *port, err = FreePort(); err != nil {
			return err
		}
	}
	c.Server = "https://127.0.0.1:" + strconv.Itoa(c.ports.api)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	tokens := ""
	for user, group := range map[string]string{Admin: "system:masters", Nobody: "nobodies", "system:node:" + NodeName: "system:nodes"} {
		tokens += fmt.Sprintf("%s,%s,%s,%q\n", token(user), user, user, group)
	}
	signer, err := testcerts.NewSigner(c.Dir, "kubelet-clients")
	if err != nil {
		return err
	}
	c.KubeletClients = signer.File
	if _, _, err := signer.Sign(kubeletClient, 24*time.Hour); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(c.file("accounts.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600),
		os.WriteFile(c.file("tokens"), []byte(tokens), 0o600),
	)
}

// FreePort returns a port of loopback that nobody listens on.
func FreePort() (int, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err = errors.Join(err, l.Close()); err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// start starts a program of the cluster.
func (c *Cluster) start(ctx context.Context, name string, args ...string) (*daemon.Process, error) {
	return daemon.Launch(ctx, c.file(name+".log"), c.Program(name), args...)
}

// Program returns the path of a program that make cluster-tools builds.
func (c *Cluster) Program(name string) string { return filepath.Join(c.bin, name) }

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

// kubeletClient is the name of the API server as a client of kubelets.
const kubeletClient = "kubelet-client"

// KubeletClient returns the files of the certificate and the key of the API server as a client of kubelets.
func (c *Cluster) KubeletClient() (certFile, keyFile string) {
	return c.file(kubeletClient + ".crt"), c.file(kubeletClient + ".key")
}

// token returns the token of a user.
func token(user string) string { return "token-" + strings.ReplaceAll(user, ":", "-") }

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	client, peer := "http://127.0.0.1:"+strconv.Itoa(c.ports.etcd), "http://127.0.0.1:"+strconv.Itoa(c.ports.peer)
	c.etcd, err = c.start(ctx, "etcd", "--data-dir", c.file("etcd"), "--name", "one", "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer)
	if err != nil {
		return err
	}
	return c.etcd.Await(ctx, func(ctx context.Context) error {
		_, err := c.askEtcd(ctx, "/health", "")
		return err
	})
}

// askEtcd sends a request to the gateway of etcd, with a body in JSON unless it is "", and returns the
// answer.
func (c *Cluster) askEtcd(ctx context.Context, path, body string) ([]byte, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+strconv.Itoa(c.ports.etcd)+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd: %s: %s: %s", path, resp.Status, text)
	}
	return text, err
}

// Compact removes the history of all objects, so that watches cannot be resumed after the API server has
// been started again.
func (c *Cluster) Compact(ctx context.Context) error {
	// Another key, so that the history has changes which the server does not know.
	text, err := c.askEtcd(ctx, "/v3/kv/put", `{"key": "b3RoZXI=", "value": "Cg=="}`)
	if err != nil {
		return err
	}
	var put struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := json.Unmarshal(text, &put); err != nil {
		return fmt.Errorf("etcd: %s: %w", text, err)
	}
	_, err = c.askEtcd(ctx, "/v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, put.Header.Revision))
	return err
}

// StartServer starts the API server, and returns once it is ready.
func (c *Cluster) StartServer(ctx context.Context) (err error) {
	certFile, keyFile := c.KubeletClient()
	c.api, err = c.start(ctx, "kube-apiserver",
		"--etcd-servers", "http://127.0.0.1:"+strconv.Itoa(c.ports.etcd),
		"--secure-port", strconv.Itoa(c.ports.api), "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--cert-dir", c.file("server"), "--token-auth-file", c.file("tokens"), "--authorization-mode", "Node,RBAC",
		"--service-account-key-file", c.file("accounts.key"), "--service-account-signing-key-file", c.file("accounts.key"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.231.0.0/24",
		"--allow-privileged", "--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", "",
		"--kubelet-client-certificate", certFile, "--kubelet-client-key", keyFile,
		"--enable-priority-and-fairness=true", "--endpoint-reconciler-type", "none",
	)
	if err != nil {
		return err
	}
	return c.api.Await(ctx, func(ctx context.Context) error {
		_, err := c.Get(ctx, "/readyz")
		return err
	})
}

// KillServer kills the API server, as a crash would.
func (c *Cluster) KillServer() error { return c.api.Stop(syscall.SIGKILL) }

// httpClient returns a client that trusts the API server, whose certificate exists once it has
// started.
func (c *Cluster) httpClient() (*http.Client, error) {
	ca, err := os.ReadFile(c.file("server/apiserver.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: time.Minute}, nil
}

// startControllers starts the controller manager and the scheduler.
func (c *Cluster) startControllers(ctx context.Context) error {
	config, err := c.Kubeconfig(Admin)
	if err != nil {
		return err
	}
	c.manager, err = c.start(ctx, "kube-controller-manager", "--kubeconfig", config, "--secure-port", "0", "--leader-elect=false",
		"--service-account-private-key-file", c.file("accounts.key"), "--root-ca-file", c.file("server/apiserver.crt"),
		"--node-monitor-grace-period", "20s", "--terminated-pod-gc-threshold", "10000")
	if err != nil {
		return err
	}
	c.scheduler, err = c.start(ctx, "kube-scheduler", "--kubeconfig", config, "--secure-port", "0", "--leader-elect=false")
	return err
}

// Kubeconfig returns the path of a kubeconfig for a user, whose context has the user's name.
func (c *Cluster) Kubeconfig(user string) (string, error) {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: %[3]q, user: {token: %[4]q}}]
contexts: [{name: %[3]q, context: {cluster: test, user: %[3]q}}]
current-context: %[3]q
`, c.Server, c.file("server/apiserver.crt"), user, token(user))
	path := c.file(strings.ReplaceAll(user, ":", "-") + ".kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Stop ends all parts, with all pods of the node.
func (c *Cluster) Stop(ctx context.Context) error {
	err := c.node.stop(ctx, c)
	for _, p := range []*daemon.Process{c.simulator, c.scheduler, c.manager, c.api, c.etcd} {
		err = errors.Join(err, p.Stop(syscall.SIGKILL))
	}
	return err
}
