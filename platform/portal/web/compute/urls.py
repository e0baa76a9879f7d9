"""URLs: nodes, node groups, pools, tiers and quotas."""

from django.urls import path

from portal.web.compute.views import node_groups, nodes, pool_accounts, pools, tiers

urlpatterns = [
    path("settings/nodes", nodes.nodes, name="nodes"),
    path("settings/nodes/join", nodes.node_join, name="node_join"),
    path("settings/nodes/<slug:node>", nodes.node, name="node"),
    path("settings/nodes/<slug:node>/change", nodes.node_change, name="node_change"),
    path("settings/nodes/<slug:node>/mix", nodes.node_mix, name="node_mix"),
    path("settings/nodes/<slug:node>/drain", nodes.node_drain, name="node_drain"),
    path("settings/nodes/<slug:node>/remove", nodes.node_remove, name="node_remove"),
    path("settings/node-groups", node_groups.node_groups, name="node_groups"),
    path("settings/node-groups/new", node_groups.node_group_new, name="node_group_new"),
    path("settings/node-groups/<slug:group>", node_groups.node_group, name="node_group"),
    path(
        "settings/node-groups/<slug:group>/change",
        node_groups.node_group_change,
        name="node_group_change",
    ),
    path(
        "settings/node-groups/<slug:group>/remove",
        node_groups.node_group_remove,
        name="node_group_remove",
    ),
    path("settings/pools", pools.pools, name="pools"),
    path("settings/pools/new", pools.pool_new, name="pool_new"),
    path("settings/pools/<slug:pool>", pools.pool, name="pool"),
    path("settings/pools/<slug:pool>/change", pools.pool_change, name="pool_change"),
    path("settings/pools/<slug:pool>/remove", pools.pool_remove, name="pool_remove"),
    path("settings/pools/<slug:pool>/account", pool_accounts.pool_account, name="pool_account"),
    path("settings/tiers", tiers.tiers, name="tiers"),
    path("settings/tiers/new", tiers.tier_new, name="tier_new"),
    path("settings/tiers/<slug:tier>", tiers.tier, name="tier"),
    path("settings/tiers/<slug:tier>/offer", tiers.tier_offer, name="tier_offer"),
    path("settings/tiers/<slug:tier>/retire", tiers.tier_retire, name="tier_retire"),
    path("settings/quotas", tiers.quotas, name="quotas"),
]
