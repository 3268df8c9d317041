package main

// Annotations of namespaces, from the API server: the only thing that the agent asks of it. While it
// does not answer, what it said last counts.

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// none is for a node without an API server: only the pods' own annotations count.
type none struct{}

func (none) annotations(string) map[string]string { return nil }

type watched struct{ store cache.Store }

// watch follows the namespaces until the context ends. Kubeconfig: "" in a pod.
func watch(ctx context.Context, kubeconfig string) (namespaces, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "ginnel-agent"
	client, err := metadata.NewForConfig(rest.AddUserAgent(config, "ginnel-agent"))
	if err != nil {
		return nil, err
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	informer := metadatainformer.NewFilteredMetadataInformer(client, resource, "", 0, cache.Indexers{}, nil).Informer()
	// Nothing but names and annotations is kept.
	err = informer.SetTransform(func(object any) (any, error) {
		if meta, is := object.(*metav1.PartialObjectMetadata); is {
			meta.ManagedFields, meta.Labels = nil, nil
		}
		return object, nil
	})
	if err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	// Pods that start before the annotations are known could miss theirs; but for no API server is
	// anything held up.
	soon, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	if !cache.WaitForCacheSync(soon.Done(), informer.HasSynced) {
		slog.Warn("the API server has not answered yet: only annotations of pods count")
	}
	return watched{store: informer.GetStore()}, nil
}

func (w watched) annotations(name string) map[string]string {
	object, there, err := w.store.GetByKey(name)
	if err != nil || !there {
		return nil
	}
	meta, is := object.(*metav1.PartialObjectMetadata)
	if !is {
		return nil
	}
	return meta.GetAnnotations()
}
