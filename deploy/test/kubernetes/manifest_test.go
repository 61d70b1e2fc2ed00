// Package kubernetes tests deploy/kubernetes.yaml. It is a module of its own, so that the API's types stay out of the project's.
package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// types has the objects that the manifest may contain.
var types = map[string]func() any{
	"v1 Secret":                     func() any { return new(core.Secret) },
	"v1 ConfigMap":                  func() any { return new(core.ConfigMap) },
	"v1 Service":                    func() any { return new(core.Service) },
	"apps/v1 Deployment":            func() any { return new(apps.Deployment) },
	"apps/v1 StatefulSet":           func() any { return new(apps.StatefulSet) },
	"policy/v1 PodDisruptionBudget": func() any { return new(policy.PodDisruptionBudget) },
}

// decode returns the objects of a manifest. Fields that the API does not have, and fields that stand there twice, are errors.
func decode(manifest []byte) (all []any, err error) {
	for i, text := range bytes.Split(manifest, []byte("\n---\n")) {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(text, &kind); err != nil {
			return nil, err
		}
		object, ok := types[kind.APIVersion+" "+kind.Kind]
		if !ok {
			return nil, fmt.Errorf("object %d is of another kind: %s %s", i, kind.APIVersion, kind.Kind)
		}
		o := object()
		if err := yaml.UnmarshalStrict(text, o); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func manifest(t *testing.T) []any {
	t.Helper()
	text, err := os.ReadFile("../../kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUnknownFieldsAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"a field that the API lacks":  "apiVersion: v1\nkind: Service\nspec: {selectors: {}}",
		"a field in the wrong place":  "apiVersion: apps/v1\nkind: StatefulSet\nspec: {shareProcessNamespace: true}",
		"a field that is there twice": "apiVersion: v1\nkind: Service\nspec: {}\nspec: {}",
		"another kind":                "apiVersion: v1\nkind: Pod",
	} {
		if _, err := decode([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// objects are those of the manifest, by name.
type objects struct {
	secrets     map[string]core.Secret
	maps        map[string]core.ConfigMap
	services    map[string]core.Service
	sites       map[string]apps.StatefulSet
	deployments map[string]apps.Deployment
	budgets     map[string]policy.PodDisruptionBudget
}

func named(t *testing.T) objects {
	t.Helper()
	all := objects{map[string]core.Secret{}, map[string]core.ConfigMap{}, map[string]core.Service{}, map[string]apps.StatefulSet{}, map[string]apps.Deployment{}, map[string]policy.PodDisruptionBudget{}}
	for _, o := range manifest(t) {
		switch o := o.(type) {
		case *core.Secret:
			all.secrets[o.Name] = *o
		case *core.ConfigMap:
			all.maps[o.Name] = *o
		case *core.Service:
			all.services[o.Name] = *o
		case *apps.StatefulSet:
			all.sites[o.Name] = *o
		case *apps.Deployment:
			all.deployments[o.Name] = *o
		case *policy.PodDisruptionBudget:
			all.budgets[o.Name] = *o
		}
	}
	return all
}

func TestASiteIsOnePodWithOneVolume(t *testing.T) {
	all := named(t)
	if len(all.sites) != 2 {
		t.Fatalf("%d sites", len(all.sites))
	}
	for name, s := range all.sites {
		pod := s.Spec.Template.Spec
		if *s.Spec.Replicas != 1 || s.Spec.PodManagementPolicy != apps.ParallelPodManagement || len(s.Spec.VolumeClaimTemplates) != 1 {
			t.Errorf("%s: more than one daemon, or no volume of its own, or one that waits for the other", name)
		}
		if pod.ShareProcessNamespace == nil || !*pod.ShareProcessNamespace {
			t.Errorf("%s: the daemon does not see the processes that push", name)
		}
		if len(pod.InitContainers) != 1 || *pod.InitContainers[0].RestartPolicy != core.ContainerRestartPolicyAlways {
			t.Errorf("%s: the daemon is no sidecar", name)
		}
		if text := all.maps[name].Data["site.config"]; !strings.Contains(text, "name = "+strings.TrimPrefix(name, "refdb-")+"\n") {
			t.Errorf("%s: its configuration has another name: %s", name, text)
		}
		all.serves(t, s.Spec.ServiceName, s.Spec.Selector.MatchLabels, s.Spec.Template)
		all.isConfined(t, name, pod, s.Spec.VolumeClaimTemplates[0].Name)
	}
}

func TestTheServiceHasSeveralPodsWithTimeToAnswerTheirCalls(t *testing.T) {
	all := named(t)
	d, ok := all.deployments["refdb-server"]
	if !ok || len(all.deployments) != 1 {
		t.Fatalf("%d deployments", len(all.deployments))
	}
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas < 2 || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Error("an upgrade leaves nobody to answer")
	}
	if b := all.budgets[d.Name]; b.Spec.MinAvailable.IntValue() != 1 || !maps.Equal(b.Spec.Selector.MatchLabels, d.Spec.Selector.MatchLabels) {
		t.Errorf("nodes may be drained until nobody answers, or never: %+v", b.Spec)
	}
	if s := pod.TopologySpreadConstraints; len(s) != 1 || s[0].TopologyKey != core.LabelHostname || !maps.Equal(s[0].LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
		t.Errorf("all pods may be on one node: %+v", s)
	}
	if *pod.TerminationGracePeriodSeconds <= 10+30 { // --stop-delay, as in its arguments, and --stop-timeout
		t.Error("the pod is killed while it answers its calls")
	}
	if c := pod.Containers[0]; !slices.Contains(c.Args, "--stop-delay=10s") || c.ReadinessProbe.HTTPGet.Scheme != core.URISchemeHTTPS || c.LivenessProbe.HTTPGet.Scheme != core.URISchemeHTTPS {
		t.Errorf("its arguments or its probes are others: %+v", c)
	}
	if file := all.maps[d.Name].Data["issuers.json"]; !slices.Contains(pod.Containers[0].Args, "--issuers=/etc/refdb-issuers/issuers.json") || !strings.Contains(file, `"ca": "/etc/refdb-issuers/ca.crt"`) {
		t.Errorf("its issuers are elsewhere: %s", file)
	}
	all.serves(t, d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template)
	all.isConfined(t, d.Name, pod)
}

// serves checks that a service selects pods.
func (all objects) serves(t *testing.T, service string, selector map[string]string, pods core.PodTemplateSpec) {
	t.Helper()
	s, ok := all.services[service]
	for label, value := range s.Spec.Selector {
		ok = ok && pods.Labels[label] == value && selector[label] == value
	}
	if !ok {
		t.Errorf("the service %s does not select its pods", service)
	}
}

// isConfined checks that a pod's containers have no more rights than they need, that their probes have an answer, and
// that what they mount is there: volumes of the pod's, and of claims.
func (all objects) isConfined(t *testing.T, name string, pod core.PodSpec, claims ...string) {
	t.Helper()
	volumes := claims
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.Secret != nil && all.secrets[v.Secret.SecretName].Name == "" || v.ConfigMap != nil && all.maps[v.ConfigMap.Name].Name == "" {
			t.Errorf("%s: the volume %s has no source", name, v.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if c := source.ConfigMap; c == nil || c.Name != "kube-root-ca.crt" && all.maps[c.Name].Name == "" {
				t.Errorf("%s: the volume %s lacks a source", name, v.Name)
			}
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.SecurityContext == nil || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation {
			t.Errorf("%s: %s has more rights than it needs", name, c.Name)
		}
		var ports []string
		for _, p := range c.Ports {
			ports = append(ports, p.Name)
		}
		for _, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			switch {
			case p == nil:
			case p.HTTPGet != nil && slices.Contains(ports, p.HTTPGet.Port.String()) && (p.HTTPGet.Path == "/healthz" || p.HTTPGet.Path == "/readyz"):
			case p.TCPSocket != nil && slices.Contains(ports, p.TCPSocket.Port.String()):
			default:
				t.Errorf("%s: a probe of %s asks nobody", name, c.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				t.Errorf("%s: %s mounts %s, which there is not", name, c.Name, m.Name)
			}
		}
	}
}
