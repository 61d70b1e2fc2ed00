package main

import (
	"context"
	"os"

	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instanceadmin "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
)

const (
	spannerProject  = "projects/gerrit-test"
	spannerInstance = spannerProject + "/instances/gerrit-test"
)

// createSpannerDatabase creates one on the emulator at an address, and returns its name.
func createSpannerDatabase(ctx context.Context, address string) (string, error) {
	if err := os.Setenv("SPANNER_EMULATOR_HOST", address); err != nil { // what the clients go by
		return "", err
	}
	instances, err := instanceadmin.NewInstanceAdminClient(ctx)
	if err != nil {
		return "", err
	}
	defer instances.Close()
	instance, err := instances.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent:     spannerProject,
		InstanceId: "gerrit-test",
		Instance:   &instancepb.Instance{Config: spannerProject + "/instanceConfigs/emulator-config", DisplayName: "gerrit-test", NodeCount: 1},
	})
	if err == nil {
		_, err = instance.Wait(ctx)
	}
	if err != nil {
		return "", err
	}
	databases, err := databaseadmin.NewDatabaseAdminClient(ctx)
	if err != nil {
		return "", err
	}
	defer databases.Close()
	database, err := databases.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{Parent: spannerInstance, CreateStatement: "CREATE DATABASE refdb"})
	if err == nil {
		_, err = database.Wait(ctx)
	}
	return spannerInstance + "/databases/refdb", err
}
